// fem::modulate: schema, checks and the choice between kernels and definition.
#include "ops/modulate/modulate.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check_like(const char* name, const at::Tensor& tensor, const at::Tensor& x, bool fits, const std::string& shape) {
  FEM_CHECK(fits, "modulate: expected ", name, " of shape ", shape, " to match x ", shape_of(x), ", got ",
            shape_of(tensor));
  FEM_CHECK(tensor.scalar_type() == x.scalar_type() && tensor.device() == x.device(), "modulate: expected ", name,
            " as ", x.scalar_type(), " on ", x.device(), " like x, got ", tensor.scalar_type(), " on ",
            tensor.device());
}

void check(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
           const OptionalTensor& positions, const OptionalTensor& frequency, std::optional<double> floor,
           const OptionalTensor& limit) {
  FEM_CHECK(x.dim() == 4, "modulate: expected x of shape [B, T, H, K], got ", shape_of(x));
  const auto dtype = x.scalar_type();
  FEM_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
            "modulate: expected float32, bfloat16 or float64, got ", dtype);
  FEM_CHECK(hidden.has_value() == weight.has_value(), "modulate: expected hidden and weight together, got only ",
            hidden ? "hidden" : "weight");
  if (hidden) {
    const auto fits =
        hidden->dim() == 3 && hidden->sym_size(0) == x.sym_size(0) && hidden->sym_size(1) == x.sym_size(1);
    check_like("hidden", *hidden, x, fits, "[B, T, C]");
    check_like("weight", *weight, x,
               weight->dim() == 2 && weight->sym_size(0) == hidden->sym_size(2) &&
                   weight->sym_size(1) == x.sym_size(2) * x.sym_size(3),
               "[C, H K]");
  }
  FEM_CHECK(!(limit && (positions || floor)), "modulate: expected positions (and floor) or a limit, got both");
  FEM_CHECK(positions.has_value() == frequency.has_value(),
            "modulate: expected positions and frequency together, got only ", positions ? "positions" : "frequency");
  FEM_CHECK(!floor || positions, "modulate: a floor belongs to a rotation, got it without positions");
  if (positions) {
    FEM_CHECK(x.sym_size(3) % 2 == 0,
              "modulate: expected an even width K to rotate, because elements turn in pairs, got x ", shape_of(x));
    FEM_CHECK(at::isIntegralType(positions->scalar_type(), /*includeBool=*/false) && positions->device() == x.device(),
              "modulate: expected integer positions on ", x.device(), " like x, got ", positions->scalar_type(), " on ",
              positions->device());
    FEM_CHECK((positions->dim() == 1 || (positions->dim() == 2 && positions->sym_size(0) == x.sym_size(0))) &&
                  positions->sym_size(-1) == x.sym_size(1),
              "modulate: expected positions of shape [T] or [B, T] to match x ", shape_of(x), ", got ",
              shape_of(*positions));
    FEM_CHECK(frequency->scalar_type() == at::kDouble && frequency->dim() == 1 &&
                  2 * frequency->sym_size(0) == x.sym_size(3) && frequency->device() == x.device(),
              "modulate: expected frequency as Double [K / 2] on ", x.device(), " to match x ", shape_of(x), ", got ",
              frequency->scalar_type(), " ", shape_of(*frequency), " on ", frequency->device());
  }
  if (limit)
    check_like("limit", *limit, x,
               limit->dim() == 2 && limit->sym_size(0) == x.sym_size(2) && limit->sym_size(1) == x.sym_size(3),
               "[H, K]");
}

at::Tensor modulate_checked(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                            const OptionalTensor& positions, const OptionalTensor& frequency,
                            std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves) {
  check(x, hidden, weight, positions, frequency, floor, limit);
  return modulate_by_definition(x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

at::Tensor modulate_on_cpu(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                           const OptionalTensor& positions, const OptionalTensor& frequency,
                           std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves) {
  check(x, hidden, weight, positions, frequency, floor, limit);
  const auto run = x.scalar_type() == at::kDouble ? modulate_by_definition : modulate_cpu;
  return run(x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

at::Tensor modulate_shape(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                          const OptionalTensor& positions, const OptionalTensor& frequency, std::optional<double> floor,
                          const OptionalTensor& limit, bool, bool) {
  check(x, hidden, weight, positions, frequency, floor, limit);
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensors4 gradient_on_cpu(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                         const OptionalTensor& weight, const OptionalTensor& positions, const OptionalTensor& frequency,
                         std::optional<double> floor, const OptionalTensor& limit, bool added, bool halves) {
  const auto run = x.scalar_type() == at::kDouble ? modulate_gradient : modulate_backward_cpu;
  return run(grad, x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

Tensors4 gradient_shapes(const at::Tensor&, const at::Tensor& x, const OptionalTensor& hidden,
                         const OptionalTensor& weight, const OptionalTensor&, const OptionalTensor&,
                         std::optional<double>, const OptionalTensor& limit, bool, bool) {
  const auto like = [&](const OptionalTensor& input) {
    return input ? at::empty_symint(input->sym_sizes(), x.options()) : at::empty({0}, x.options());
  };
  return {like(x), like(hidden), like(weight), like(limit)};
}

}  // namespace

at::Tensor call_modulate(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                         const OptionalTensor& positions, const OptionalTensor& frequency, std::optional<double> floor,
                         const OptionalTensor& limit, bool added, bool halves) {
  static const auto op = find_operator<ModulateOp>("fem::modulate");
  return op.call(x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

Tensors4 call_modulate_backward(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                                const OptionalTensor& weight, const OptionalTensor& positions,
                                const OptionalTensor& frequency, std::optional<double> floor,
                                const OptionalTensor& limit, bool added, bool halves) {
  static const auto op = find_operator<ModulateBackwardOp>("fem::modulate_backward");
  return op.call(grad, x, hidden, weight, positions, frequency, floor, limit, added, halves);
}

at::Tensor modulate(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after) {
  const Rotation rotation = after.rotation.value_or(Rotation());
  return call_modulate(x, if_defined(modulation.hidden), if_defined(modulation.weight), if_defined(rotation.positions),
                       if_defined(rotation.frequency), after.floor, after.limit, modulation.added, rotation.halves);
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "modulate(Tensor x, Tensor? hidden=None, Tensor? weight=None, Tensor? positions=None, Tensor? frequency=None, "
      "float? floor=None, Tensor? limit=None, bool added=False, bool halves=False) -> Tensor");
  m.def(
      "modulate_backward(Tensor grad, Tensor x, Tensor? hidden, Tensor? weight, Tensor? positions, Tensor? frequency, "
      "float? floor, Tensor? limit, bool added, bool halves) -> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("modulate", modulate_on_cpu);
  m.impl("modulate_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("modulate", modulate_shape);
  m.impl("modulate_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("modulate", announced<modulate_checked>);
  m.impl("modulate_backward", announced<modulate_gradient>);
}

}  // namespace fem
