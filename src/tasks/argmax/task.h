#pragma once

#include "tasks/argmax/options.h"
#include "tasks/table.h"

namespace fem {

// Throws one clear sentence if no model or no example can be made so.
void check(const ArgmaxOptions& options);
ArgmaxOptions argmax_options_from_json(const nlohmann::json& recipe);  // checked

std::unique_ptr<Task> argmax_task(const ArgmaxOptions& options, const TrainOptions& train);

nlohmann::json to_json(const ArgmaxOptions& options);  // {"task": "argmax", "model": {...}, "data": {...}}

const TaskEntry& argmax_entry();

}  // namespace fem
