// What every model of a task has as operators besides its own functions: for languages that hold the parameters.
#pragma once

#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "bindings/parameters.h"

namespace fem {

template <typename Options>
struct TaskModelConfig {
  Options options;
  std::vector<ParameterSpec> parameters;
};

// The configuration of a call, once its parameters are known to be of it.
template <auto parsed>
const auto& checked_config(const char* who, at::TensorList parameters, std::string_view config) {
  const auto& found = parsed_once<parsed>(config);
  check_parameters(who, found.parameters, parameters);
  return found;
}

// NAME_parameters, initialize_NAME, NAME_options, NAME_file and load_NAME. parsed: config -> TaskModelConfig;
// file_config: options -> config.json; read: folder -> options and parameters.
template <auto parsed, auto file_config, auto read>
void register_task_model(torch::Library& m, const std::string& name) {
  m.def((name + "_parameters(str config) -> (str[] names, Tensor[] shapes)").c_str(),
        [](std::string_view config) { return names_and_shapes(parsed_once<parsed>(config).parameters); });
  m.def(("initialize_" + name + "(Tensor(a!)[] parameters, str config) -> ()").c_str(),
        [](at::TensorList parameters, std::string_view config) {
          initialize_parameters(checked_config<parsed>("initialize", parameters, config).parameters, parameters);
        });
  // Every field, checked; and the text of config.json.
  m.def((name + "_options(str config) -> str").c_str(),
        [](std::string_view config) { return to_json(parsed_once<parsed>(config).options).dump(); });
  m.def((name + "_file(str config) -> str").c_str(),
        [](std::string_view config) { return file_config(parsed_once<parsed>(config).options).dump(2) + "\n"; });
  m.def(("load_" + name + "(str folder) -> (Dict(str, Tensor) parameters, str config)").c_str(),
        [](std::string_view folder) -> std::tuple<c10::Dict<std::string, at::Tensor>, std::string> {
          const auto file = read(folder);
          c10::Dict<std::string, at::Tensor> parameters;
          for (const auto& [own, tensor] : file.parameters) parameters.insert(own, tensor);
          return {parameters, to_json(file.options).dump()};
        });
}

}  // namespace fem
