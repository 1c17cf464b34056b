// The definition of project and of its gradient, in plain ATen.
#include <ATen/ATen.h>

#include "ops/project/project.h"

namespace fem {

TensorVector project_by_definition(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  TensorVector y;
  for (size_t i = 0; i < weights.size(); ++i)
    y.push_back(at::linear(x, weights[i], biases.empty() ? OptionalTensor() : OptionalTensor(biases[i])));
  return y;
}

ProjectGradients project_gradient(at::TensorList grads, const at::Tensor& x, at::TensorList weights, bool input,
                                  bool biased) {
  ProjectGradients d;
  auto& [dx, dweights, dbiases] = d;
  const at::Tensor rows = x.flatten(0, -2);
  for (size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor dy = grads[i].flatten(0, -2);
    if (input) dx = dx.defined() ? dx + at::matmul(grads[i], weights[i]) : at::matmul(grads[i], weights[i]);
    dweights.push_back(at::mm(dy.t(), rows));
    if (biased) dbiases.push_back(dy.sum(0));
  }
  if (!dx.defined()) dx = at::empty({0}, x.options());
  return d;
}

}  // namespace fem
