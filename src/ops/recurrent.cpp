#include "ops/recurrent.h"

#include "ops/checks.h"
#include "ops/exponents.h"
#include "ops/sequences.h"
#include "util/check.h"

namespace fem {
namespace {

// log(e^a + e^b) of finite numbers. Unlike at::logaddexp it can be differentiated twice however far apart they are.
at::Tensor log_add(const at::Tensor& a, const at::Tensor& b) {
  const auto log1p_exp = [](const at::Tensor& x) { return at::softplus(x, 1, /*threshold=*/40); };
  const at::Tensor gap = a - b;
  return at::where(gap > 0, a + log1p_exp(-gap), b + log1p_exp(gap));
}

}  // namespace

void check_recurrent(const char* op, const at::Tensor& value, const OptionalTensor& beta,
                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens) {
  FEM_CHECK(value.dim() == 4, op, ": expected value of shape [B, T, H, V], got ", shape_of(value));
  check_float(op, value);
  const auto batch = value.sym_size(0), tokens = value.sym_size(1);
  if (beta) {
    check_like(op, "beta", *beta, "value", value, {value.sym_size(2), value.sym_size(3)});
    check_beta(op, *beta);
  }
  if (key_mask) check_exact(op, "key_mask", *key_mask, {batch, tokens}, at::kBool, "(true = a real token)");
  if (cu_seqlens) {
    FEM_CHECK(batch == 1, op, ": cu_seqlens needs all sequences packed in one row: expected value of shape ",
              "[1, T, H, V], got ", shape_of(value));
    check_borders(op, *cu_seqlens, tokens);
  }
}

Direction backward_direction(const RecurrentReadOptions& options, const at::Tensor& value, const char* op) {
  FEM_CHECK(!options.initial, op,
            ": an initial state needs causal=true, because without it early tokens see later ones");
  Direction direction{true, options};
  if (options.key_mask) direction.options.key_mask = options.key_mask->flip(1);
  if (options.cu_seqlens) direction.options.cu_seqlens = options.cu_seqlens->flip(0).neg().add(value.sym_size(1));
  return direction;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> as_tuple(const RecurrentRead& read) {
  const auto present = [&](const at::Tensor& x) { return x.defined() ? x : at::empty({0}, read.mean.options()); };
  return {read.mean, present(read.free_energy), read.log_normalizer, present(read.state)};
}

RecurrentRead rounded(RecurrentRead read, at::ScalarType dtype) {
  read.mean = read.mean.to(dtype);
  if (read.free_energy.defined()) read.free_energy = read.free_energy.to(dtype);
  return read;
}

RecurrentRead merge(const RecurrentRead& a, const RecurrentRead& b, const OptionalTensor& beta) {
  // Finite, so that two empty sides compare; far below any logarithm of a sum.
  const auto finite = [](const at::Tensor& x) { return x.clamp_min(-1e30); };
  const auto spread = [&](const at::Tensor& x) { return x.dim() == 3 ? x.unsqueeze(-1) : x; };
  const at::Tensor log_ratio = finite(a.log_normalizer) - finite(b.log_normalizer);
  const at::Tensor share = spread(log_ratio.sigmoid());
  RecurrentRead both;
  both.mean = share * a.mean + (1 - share) * b.mean;
  both.log_normalizer = log_add(finite(a.log_normalizer), finite(b.log_normalizer))
                            .masked_fill((a.log_normalizer == -INFINITY) & (b.log_normalizer == -INFINITY), -INFINITY);
  if (beta) {
    // Its gradients from below cancel: they are added before they are rounded.
    const at::Tensor wide = beta->to(a.free_energy.scalar_type());
    const auto energy = [&](const RecurrentRead& read, const at::Tensor& log_share) {
      return wide * read.free_energy + spread(log_share);
    };
    both.free_energy = log_add(energy(a, at::log_sigmoid(log_ratio)), energy(b, at::log_sigmoid(-log_ratio))) / wide;
  }
  return both;
}

}  // namespace fem
