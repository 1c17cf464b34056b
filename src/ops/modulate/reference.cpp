// The definition of modulate and of its gradient, in plain ATen.
#include <ATen/ATen.h>

#include "ops/differentiate.h"
#include "ops/modulate/modulate.h"

namespace fem {
namespace {

// (x_0, x_1, x_2, x_3, ...) -> (x_1, x_0, x_3, x_2, ...)
at::Tensor partners(const at::Tensor& x) { return x.unflatten(-1, {-1, 2}).flip(-1).flatten(-2); }

}  // namespace

at::Tensor modulate_definition(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after) {
  at::Tensor y = x;
  if (modulation.defined()) {
    const at::Tensor c = at::matmul(modulation.hidden, modulation.weight).view_as(x);
    y = modulation.added ? x + c : x * (1 + c);
  }
  if (after.limit) return y.clamp(-*after.limit, *after.limit);
  if (after.rotation) {
    const RotaryTable table = rotary_table(*after.rotation, x);
    y = y * table.cosine.unsqueeze(-2) + partners(y) * table.sine.unsqueeze(-2);
  }
  return after.floor ? at::relu(y) + *after.floor : y;
}

at::Tensor modulate_by_definition(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                                  const OptionalTensor& positions, const OptionalTensor& frequency,
                                  std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves) {
  AfterModulation after{std::nullopt, floor, limit};
  if (positions) after.rotation = {*positions, *frequency, halves};
  const Modulation modulation{hidden.value_or(at::Tensor()), weight.value_or(at::Tensor()), added};
  return modulate_definition(x, modulation, after).clone(at::MemoryFormat::Contiguous);
}

Tensors4 modulate_gradient(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                           const OptionalTensor& weight, const OptionalTensor& positions,
                           const OptionalTensor& frequency, std::optional<double> floor, const OptionalTensor& limit,
                           bool added, bool halves) {
  const auto definition = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {modulate_by_definition(in[0], if_defined(in[1]), if_defined(in[2]), positions, frequency, floor,
                                   if_defined(in[3]), added, halves)};
  };
  const auto or_undefined = [](const OptionalTensor& input) { return input.value_or(at::Tensor()); };
  const auto d = gradient_of(definition, {x, or_undefined(hidden), or_undefined(weight), or_undefined(limit)}, {grad});
  // An output is never an input: where c is added, the gradient of x is that of the result.
  const auto or_empty = [&](const at::Tensor& gradient) {
    if (!gradient.defined()) return at::empty({0}, x.options());
    return gradient.is_alias_of(grad) ? gradient.clone(at::MemoryFormat::Contiguous) : gradient.contiguous();
  };
  return {or_empty(d[0]), or_empty(d[1]), or_empty(d[2]), or_empty(d[3])};
}

}  // namespace fem
