#pragma once

#include "tasks/images/data.h"
#include "tasks/table.h"

namespace fem {

ImageOptions image_options_from_json(const nlohmann::json& recipe);
nlohmann::json to_json(const ImageOptions& options);  // {"task": "images", "model": {...}, "data": {...}}

std::unique_ptr<Task> image_task(const ImageOptions& options, const ImageSet& set, const TrainOptions& train);

// Training for so many passes over the pictures: steps, warm-up (a twentieth) and a validation each pass.
nlohmann::json training_for(const ImageOptions& options, const ImageSet& set, int64_t batch, int64_t epochs);

const TaskEntry& images_entry();

}  // namespace fem
