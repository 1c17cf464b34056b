// The files of a task whose model is a list of named parameters: model.safetensors and the recipe as config.json.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fem {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

void save_parameters(const std::filesystem::path& folder, const NamedParameters& parameters,
                     const nlohmann::json& recipe);
// Changes the parameters in place; who: the task, for the sentence.
void load_parameters(const std::filesystem::path& folder, const char* who, const NamedParameters& parameters);

}  // namespace fem
