// Keeps its inputs; the factor, which is as wide as x, is formed again in backward. So are its outputs, for operators
// that would keep them (again.h).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/modulate/again.h"
#include "ops/modulate/modulate.h"
#include "ops/transforms.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor or_undefined(const OptionalTensor& input) { return input.value_or(at::Tensor()); }

struct ModulateFunction : torch::autograd::Function<ModulateFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const OptionalTensor& hidden,
                            const OptionalTensor& weight, const OptionalTensor& positions,
                            const OptionalTensor& frequency, std::optional<double> floor, const OptionalTensor& limit,
                            bool added, bool halves) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({x, or_undefined(hidden), or_undefined(weight), or_undefined(positions),
                            or_undefined(frequency), or_undefined(limit)});
    ctx->saved_data["halves"] = halves;
    ctx->saved_data["floor"] = floor;
    ctx->saved_data["added"] = added;
    return call_modulate(x, hidden, weight, positions, frequency, floor, limit, added, halves);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [dx, dhidden, dweight, dlimit] = call_modulate_backward(
        grad[0], saved[0], if_defined(saved[1]), if_defined(saved[2]), if_defined(saved[3]), if_defined(saved[4]),
        ctx->saved_data["floor"].toOptional<double>(), if_defined(saved[5]), ctx->saved_data["added"].toBool(),
        ctx->saved_data["halves"].toBool());
    const at::Tensor none;
    return {dx,
            saved[1].defined() ? dhidden : none,
            saved[2].defined() ? dweight : none,
            none,
            none,
            none,
            saved[5].defined() ? dlimit : none,
            none,
            none};
  }
};

at::Tensor modulate_autograd(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                             const OptionalTensor& positions, const OptionalTensor& frequency,
                             std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves) {
  if (under_transform())
    return modulate_by_definition(x, hidden, weight, positions, frequency, floor, limit, added, halves);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_modulate(x, hidden, weight, positions, frequency, floor, limit, added, halves);
  }
  const at::Tensor y = ModulateFunction::apply(x, hidden, weight, positions, frequency, floor, limit, added, halves);
  if (MakeAgainGuard* guard = MakeAgainGuard::current()) {
    variable_list inputs{x};
    for (const OptionalTensor& input : {hidden, weight, positions, frequency, limit})
      inputs.push_back(or_undefined(input));
    guard->add(y, MakeAgainGuard::Maker::kModulate, std::move(inputs), {halves, floor, added});
  }
  return y;
}

Tensors4 gradient_autograd(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                           const OptionalTensor& weight, const OptionalTensor& positions,
                           const OptionalTensor& frequency, std::optional<double> floor, const OptionalTensor& limit,
                           bool added, bool halves) {
  if (at::GradMode::is_enabled())
    return modulate_gradient(grad, x, hidden, weight, positions, frequency, floor, limit, added, halves);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_modulate_backward(grad, x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("modulate", modulate_autograd);
  m.impl("modulate_backward", gradient_autograd);
}

}  // namespace fem
