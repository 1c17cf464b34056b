// Configurations and parameters of languages that hold the parameters themselves: a configuration travels as the JSON
// text of its fields, parameters as a list in the order in which they are declared.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "fem/mixer.h"

namespace fem {

// parse(config), once per thread and text, so that a call of an operator does not.
template <auto parse>
const auto& parsed_once(std::string_view config) {
  static thread_local std::unordered_map<std::string, decltype(parse(config))> known;
  const std::string text(config);
  const auto found = known.find(text);
  return found != known.end() ? found->second : known.emplace(text, parse(config)).first->second;
}

using NamesAndShapes = std::tuple<std::vector<std::string>, std::vector<at::Tensor>>;  // shapes as meta tensors
NamesAndShapes names_and_shapes(const std::vector<ParameterSpec>& specs);

// Refuses a list that is not of these parameters; who complains.
void check_parameters(const char* who, const std::vector<ParameterSpec>& specs, at::TensorList parameters);

// One after the other from torch's default generator, as the C++ modules do: one seed gives both the same weights.
void initialize_parameters(const std::vector<ParameterSpec>& specs, at::TensorList parameters);

}  // namespace fem
