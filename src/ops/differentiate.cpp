#include "ops/differentiate.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

namespace fem {

std::vector<at::Tensor> gradient_of(const Definition& definition, const std::vector<at::Tensor>& inputs,
                                    const std::vector<at::Tensor>& grads) {
  const bool again = at::GradMode::is_enabled();
  // Below autograd its dispatch keys are switched off; here they are what is wanted.
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard with_autograd(
      keys.included_, keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const at::AutoGradMode record(true);

  std::vector<at::Tensor> variables, wanted;
  for (const at::Tensor& input : inputs) {
    // A view of its own each: two inputs may be the same tensor.
    variables.push_back(!input.defined()                 ? input
                        : again && input.requires_grad() ? input.view_as(input)
                                                         : input.detach().requires_grad_());
    if (input.defined()) wanted.push_back(variables.back());
  }
  const std::vector<at::Tensor> outputs = definition(variables);
  std::vector<at::Tensor> roots, seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !grads[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(grads[i]);
  }
  std::vector<at::Tensor> gradients(wanted.size());
  if (!roots.empty())
    gradients = torch::autograd::grad(roots, wanted, seeds, /*retain_graph=*/again, /*create_graph=*/again,
                                      /*allow_unused=*/true);
  std::vector<at::Tensor> result;
  size_t next = 0;
  for (const at::Tensor& input : inputs) {
    result.push_back(input.defined() ? gradients[next++] : at::Tensor());
    if (input.defined() && !result.back().defined()) result.back() = at::zeros_like(input);
  }
  return result;
}

}  // namespace fem
