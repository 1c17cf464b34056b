#include "bindings/parameters.h"

#include <ATen/ATen.h>

#include "mixer/parameters.h"
#include "util/check.h"

namespace fem {

NamesAndShapes names_and_shapes(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> names;
  std::vector<at::Tensor> shapes;
  for (const ParameterSpec& spec : specs) {
    names.push_back(spec.name);
    shapes.push_back(at::empty(spec.shape, at::kMeta));
  }
  return {std::move(names), std::move(shapes)};
}

void check_parameters(const char* who, const std::vector<ParameterSpec>& specs, at::TensorList parameters) {
  for (size_t i = 0; i < specs.size(); ++i) {
    FEM_CHECK(i < parameters.size(), who, ": expected ", specs[i].name, " after ", i, " parameters, got no more");
    FEM_CHECK(parameters[i].sizes() == specs[i].shape, who, ": expected ", specs[i].name, " of shape ",
              at::IntArrayRef(specs[i].shape), ", got ", shape_of(parameters[i]));
  }
  FEM_CHECK(specs.size() == parameters.size(), who, ": expected ", specs.size(), " parameters, got ",
            parameters.size());
}

void initialize_parameters(const std::vector<ParameterSpec>& specs, at::TensorList parameters) {
  const at::NoGradGuard no_gradients;
  for (size_t i = 0; i < specs.size(); ++i)
    if (!parameters[i].is_meta()) parameters[i].copy_(initial_value(specs[i]));
}

}  // namespace fem
