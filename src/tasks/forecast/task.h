#pragma once

#include "tasks/forecast/options.h"
#include "tasks/table.h"

namespace fem {

ForecastOptions forecast_options_from_json(const nlohmann::json& recipe);
nlohmann::json to_json(const ForecastOptions& options);  // {"task": "forecast", "model": {...}, "data": {...}}

std::unique_ptr<Task> forecast_task(const ForecastOptions& options, Series series, const TrainOptions& train);

// Training for so many passes over the windows of a table: steps, warm-up (a twentieth) and a validation each pass.
nlohmann::json training_for(const ForecastOptions& options, const Series& series, int64_t batch, int64_t epochs);

const TaskEntry& forecast_entry();

}  // namespace fem
