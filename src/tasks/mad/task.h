#pragma once

#include "tasks/mad/options.h"
#include "tasks/table.h"

namespace fem {

MadOptions mad_options_from_json(const nlohmann::json& recipe);  // checked, with nothing left open

std::unique_ptr<Task> mad_task(const MadOptions& options, const TrainOptions& train);

nlohmann::json to_json(const MadOptions& options);  // {"task": "mad", "model": {...}, "data": {...}}

const TaskEntry& mad_entry();

}  // namespace fem
