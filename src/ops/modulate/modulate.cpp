#include "ops/modulate/modulate.h"

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {
namespace {

// (x_0, x_1, x_2, x_3, ...) -> (x_1, x_0, x_3, x_2, ...)
at::Tensor partners(const at::Tensor& x) { return x.unflatten(-1, {-1, 2}).flip(-1).flatten(-2); }

void check_rotation(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& frequency) {
  FEM_CHECK(x.sym_size(3) % 2 == 0,
            "modulate: expected an even width K to rotate, because elements turn in pairs, got x ", shape_of(x));
  FEM_CHECK(at::isIntegralType(positions.scalar_type(), /*includeBool=*/false),
            "modulate: expected integer positions, got ", positions.scalar_type());
  FEM_CHECK((positions.dim() == 1 || (positions.dim() == 2 && positions.sym_size(0) == x.sym_size(0))) &&
                positions.sym_size(-1) == x.sym_size(1),
            "modulate: expected positions of shape [T] or [B, T] to match x ", shape_of(x), ", got ",
            shape_of(positions));
  check_exact("modulate", "frequency", frequency, {x.sym_size(3) / 2}, at::kDouble, "(radians for every pair of x)");
}

}  // namespace

void ModulateOp::check(const Inputs& in) {
  const at::Tensor& x = in.x;
  FEM_CHECK(x.dim() == 4, "modulate: expected x of shape [B, T, H, K], got ", shape_of(x));
  check_float("modulate", x);
  FEM_CHECK(in.hidden.has_value() == in.weight.has_value(), "modulate: expected hidden and weight together, got only ",
            in.hidden ? "hidden" : "weight");
  if (in.hidden) {
    check_like("modulate", "hidden", *in.hidden, "x", x, {x.sym_size(0), x.sym_size(1), kAnySize});
    check_like("modulate", "weight", *in.weight, "x", x, {in.hidden->sym_size(2), x.sym_size(2) * x.sym_size(3)});
  }
  FEM_CHECK(!(in.limit && (in.positions || in.floor)), "modulate: expected positions (and floor) or a limit, got both");
  FEM_CHECK(in.positions.has_value() == in.frequency.has_value(),
            "modulate: expected positions and frequency together, got only ", in.positions ? "positions" : "frequency");
  FEM_CHECK(!in.floor || in.positions, "modulate: a floor belongs to a rotation, got it without positions");
  if (in.positions) check_rotation(x, *in.positions, *in.frequency);
  if (in.limit) check_like("modulate", "limit", *in.limit, "x", x, {x.sym_size(2), x.sym_size(3)});
}

std::vector<Spec> ModulateOp::outputs(const Inputs& in) { return {{in.x.sym_sizes().vec(), in.x.scalar_type()}}; }

ModulateOp::Outputs ModulateOp::definition(const Inputs& in) {
  at::Tensor y = in.x;
  if (in.hidden) {
    const at::Tensor c = at::matmul(*in.hidden, *in.weight).view_as(y);
    y = in.added ? y + c : y * (1 + c);
  }
  if (in.limit) return {y.clamp(-*in.limit, *in.limit)};
  if (in.positions) {
    const RotaryTable table = rotary_table({*in.positions, *in.frequency, in.halves}, y);
    y = y * table.cosine.unsqueeze(-2) + partners(y) * table.sine.unsqueeze(-2);
  }
  return {in.floor ? at::relu(y) + *in.floor : y};
}

namespace {

ModulateOp::Inputs inputs_of(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after,
                             bool recompute) {
  const Rotation rotation = after.rotation.value_or(Rotation());
  return {x,
          if_defined(modulation.hidden),
          if_defined(modulation.weight),
          after.limit,
          if_defined(rotation.positions),
          if_defined(rotation.frequency),
          after.floor,
          modulation.added,
          rotation.halves,
          recompute};
}

}  // namespace

at::Tensor modulate(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after, bool recompute) {
  return call<ModulateOp>(inputs_of(x, modulation, after, recompute)).y;
}

at::Tensor modulate_definition(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after) {
  return ModulateOp::definition(inputs_of(x, modulation, after, false)).y;
}

FEM_REGISTER_OPERATOR(ModulateOp)

}  // namespace fem
