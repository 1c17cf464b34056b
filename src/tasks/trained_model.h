// What tasks share whose model is a model folder of its own kind.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fem {

// A model as it lies in a folder, and the recipe of the run it is of: null if there is none, or of another task.
struct TrainedFolder {
  std::filesystem::path folder;
  nlohmann::json recipe;
};

// place: a run, of which the best checkpoint is taken, or a model folder.
TrainedFolder trained_folder(const std::filesystem::path& place, const std::string& task);

// Takes the parameters of a model that was saved in a folder. Its options must be these but for dropout, or they would
// be misread; task: who complains.
void take_parameters(torch::nn::Module& model, const nlohmann::json& options, const torch::nn::Module& saved,
                     const nlohmann::json& saved_options, const std::string& task, const std::filesystem::path& folder);

}  // namespace fem
