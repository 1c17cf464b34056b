#include "fem/ops/rotary.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <map>
#include <mutex>

#include "fem/ops/modulate.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {

RotaryTable rotary_table(const at::Tensor& positions, int64_t width, const at::Tensor& like, double theta,
                         Dialect dialect) {
  FEM_CHECK(!positions.is_floating_point() && (positions.dim() == 1 || positions.dim() == 2),
            "rotary: expected integer positions of shape [T] or [B, T], got ", positions.scalar_type(), " ",
            shape_of(positions));
  FEM_CHECK(width % 2 == 0, "rotary: expected an even width K, because elements turn in pairs, got ", width);
  const int64_t half = width / 2;
  // Angles in float64: position * frequency in float32 is off by 1e-3 rad at 32k tokens. The authors' frequencies,
  // though, are rounded to float32, and checkpoints have learnt with those.
  const at::ScalarType precision = dialect == Dialect::kReference ? at::kFloat : at::kDouble;
  const at::Tensor exponent = at::arange(half, like.options().dtype(precision)) / static_cast<double>(half);
  const at::Tensor frequency = at::pow(theta, exponent).reciprocal().to(at::kDouble);
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * frequency;  // [(B,) T, K/2]
  // Element c = 2m or 2m + 1 takes the angle of pair m, or in the reference dialect of frequency c mod K/2.
  const auto spread = [&](const at::Tensor& x) {
    return dialect == Dialect::kReference ? at::cat({x, x}, -1) : at::stack({x, x}, -1).flatten(-2);
  };
  const at::Tensor sine = spread(angle.sin());
  const at::Tensor even = sine.slice(-1, 0, std::nullopt, 2).neg(), odd = sine.slice(-1, 1, std::nullopt, 2);
  return {spread(angle.cos()).to(like.scalar_type()), at::stack({even, odd}, -1).flatten(-2).to(like.scalar_type())};
}

namespace {

// Tables of the positions 0 ... n - 1, which grow to what was asked for and a half more.
class RememberedTables {
 public:
  RotaryTable rows(int64_t start, int64_t length, int64_t width, const at::Tensor& like, double theta,
                   Dialect dialect) {
    const std::lock_guard<std::mutex> lock(mutex_);
    RotaryTable& table = tables_[{width, theta, dialect, like.scalar_type(), like.device().str()}];
    const int64_t end = start + length;
    if (!table.cosine.defined() || table.cosine.size(0) < end) {
      const c10::InferenceMode usable_in_training(false);
      const at::NoGradGuard no_grad;
      const at::Tensor positions = at::arange(end + end / 2, like.options().dtype(at::kLong));
      table = rotary_table(positions, width, like, theta, dialect);
    }
    return {table.cosine.narrow(0, start, length), table.sine.narrow(0, start, length)};
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int64_t, double, Dialect, at::ScalarType, std::string>, RotaryTable> tables_;
};

// A graph that is being traced must hold the computation, not a tensor of this process.
bool is_traced(const at::Tensor& x) {
  const c10::DispatchKeySet wrapped({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                     c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return c10::impl::TorchDispatchModeTLS::any_modes_set() || x.is_meta() || x.key_set().has_any(wrapped);
}

}  // namespace

RotaryTable rotary_table(int64_t start, const c10::SymInt& length, int64_t width, const at::Tensor& like, double theta,
                         Dialect dialect) {
  static RememberedTables remembered;
  if (!is_traced(like) && !length.is_symbolic())
    return remembered.rows(start, length.expect_int(), width, like, theta, dialect);
  const at::Tensor positions = at::arange(length, like.options().dtype(at::kLong)) + start;
  return rotary_table(positions, width, like, theta, dialect);
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta, Dialect dialect) {
  return modulate(x, {}, {rotary_table(positions, width_of(x), x, theta, dialect), {}, {}});
}

}  // namespace fem
