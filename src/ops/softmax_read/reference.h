#pragma once

#include "fem/ops/softmax_read.h"

namespace fem {

struct SoftmaxReadGradients {
  at::Tensor query, key, value, beta;  // beta: undefined without beta
};

// The gradient written out (README.md): differentiable itself, so that second derivatives go through it.
// grad_free_energy is ignored without beta.
SoftmaxReadGradients softmax_read_definition_backward(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                                      const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value, const std::optional<at::Tensor>& beta,
                                                      const SoftmaxReadOptions& options);

}  // namespace fem
