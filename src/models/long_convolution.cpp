#include "models/long_convolution.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>
#include <numbers>

#include "mixer/positions.h"
#include "models/packed.h"
#include "models/traced.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "ops/sequences.h"
#include "priors/remember.h"

namespace fem {
namespace {

constexpr int64_t kPeriods = 6;
constexpr double kFirstPeriod = 4, kShortest = 2, kLongest = 2048;  // tokens
constexpr const char* kCache = "convolved";
// A step of no more tokens is summed directly: its bits do not depend on the number of threads, as an FFT's may.
constexpr int64_t kFewTokens = 8;

// u [B, T, C] by h [T or more, C], through a transform of length 2 T: what wraps around falls behind the last token.
at::Tensor by_transform(const at::Tensor& u, const at::Tensor& h) {
  const c10::SymInt length = u.sym_size(1);
  const auto spectrum = [&](const at::Tensor& rows) {
    return at::fft_rfft_symint(rows.transpose(-1, -2).contiguous(), 2 * length);
  };
  const at::Tensor product = spectrum(u) * spectrum(h.slice_symint(0, 0, length));
  return at::fft_irfft_symint(product, 2 * length).slice_symint(-1, 0, length).transpose(-1, -2);
}

at::Tensor packed_by_transform(const at::Tensor& u, const at::Tensor& h, const std::vector<int64_t>& borders) {
  return at::cat(every_length(borders, [&](const auto& batch_of) { return by_transform(batch_of(u), h); }), 1);
}

// The same where a graph is made and the borders have no values yet: every sequence gets a row as long as all of them.
at::Tensor packed_by_transform_traced(const at::Tensor& u, const at::Tensor& h, const Batch& batch) {
  const c10::SymInt length = u.sym_size(1), sequences = batch.cu_seqlens->sym_size(0) - 1;
  const at::Tensor token = at::arange(length, u.options().dtype(at::kLong));
  const at::Tensor sequence = at::bucketize(token, *batch.cu_seqlens, /*out_int32=*/false, /*right=*/true) - 1;
  const at::Tensor place =
      sequence * at::scalar_tensor(length, token.options()) + positions_of(u, batch, nullptr).index;
  const at::Tensor rows =
      at::zeros_symint({sequences * length, u.sym_size(2)}, u.options()).index_copy(0, place, u.squeeze(0));
  const at::Tensor y = by_transform(rows.view_symint({sequences, length, u.sym_size(2)}), h);
  return y.flatten(0, 1).index_select(0, place).unsqueeze(0);
}

// The sum over dimension 1, halved until one row is left. Overwrites the terms.
at::Tensor sum_by_halves(const at::Tensor& terms) {
  int64_t rows = terms.size(1);
  while (rows > 1) {
    const int64_t half = (rows + 1) / 2;
    terms.narrow(1, 0, rows - half).add_(terms.narrow(1, half, rows - half));
    rows = half;
  }
  return terms.narrow(1, 0, 1);
}

// The last tokens of all [B, T, C], of which some are not real.
at::Tensor by_sums(const at::Tensor& all, const at::Tensor& h, const std::optional<at::Tensor>& real, int64_t last) {
  const at::Tensor position = positions_of(all, {.mask = real}, nullptr).index;  // [T] or [B, T]
  std::vector<at::Tensor> rows;
  for (int64_t t = all.size(1) - last; t < all.size(1); ++t) {
    const at::Tensor lag = position.narrow(-1, t, 1) - position;
    const at::Tensor unseen = real ? lag.lt(0).logical_or(real->logical_not()) : lag.lt(0);
    const at::Tensor terms = all * h.index({lag.clamp_min(0)});
    rows.push_back(sum_by_halves(terms.masked_fill_(unseen.unsqueeze(-1), 0)));
  }
  return at::cat(rows, 1);
}

at::Tensor after_state(const at::Tensor& u, const FilterWeights& w, const CausalTokens& tokens, MixerState& state) {
  TokenCache& cache = state.caches[kCache];
  const int64_t before = cache.length(), fresh = u.size(1);
  const std::optional<at::Tensor> real = remember_mask(state.caches, before, u, tokens.real);
  const at::Tensor h = long_filter(w, before + fresh), all = extended(cache, u).to(h.scalar_type());
  if (before > 0 && fresh <= kFewTokens) return by_sums(all, h, real, fresh);
  const CausalTokens every(all, {.mask = real});
  return every.as_they_were(by_transform(every.real_first(all), h)).slice(1, before);
}

at::Tensor without_state(const at::Tensor& u, const at::Tensor& h, const Batch& batch) {
  if (!batch.cu_seqlens) return by_transform(u, h);
  if (is_traced(*batch.cu_seqlens)) return packed_by_transform_traced(u, h, batch);
  return packed_by_transform(u, h, borders_of(*batch.cu_seqlens, u.size(1), "hyena"));
}

}  // namespace

void declare_filter(std::vector<ParameterSpec>& specs, int64_t channels, int64_t hidden) {
  // Variances of one after the sines and in the filter. None decays: the filter would shrink with its network.
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in, double deviation) {
    specs.push_back({name + ".weight", {out, in}, ParameterSpec::Init::kNormal, deviation});
  };
  const double spread = std::sqrt(2.0 / static_cast<double>(hidden));
  matrix("filter.features", hidden, 2 * kPeriods, 1.0);
  specs.push_back({"filter.features.bias", {hidden}, ParameterSpec::Init::kNormal, 1.0});
  matrix("filter.hidden", hidden, hidden, spread);
  specs.push_back({"filter.hidden.bias", {hidden}, ParameterSpec::Init::kNormal, 1.0});
  matrix("filter.output", channels, hidden, spread);
}

at::Tensor long_filter(const FilterWeights& w, const c10::SymInt& length) {
  const auto given = w.output.options(), exact = given.dtype(at::toOpMathType(w.output.scalar_type()));
  const at::Tensor period = kFirstPeriod * at::pow(4.0, at::arange(kPeriods, given.dtype(at::kDouble)));
  const at::Tensor angle = at::arange(length, period.options()).unsqueeze(1) * (2 * std::numbers::pi / period);
  const at::Tensor z = at::cat({angle.cos(), angle.sin()}, 1).to(given.dtype());
  const at::Tensor first = project(z, {w.features})[0].sin();
  const at::Tensor raw = project(project(first, {w.hidden})[0].sin(), {LinearWeights{w.output, {}}})[0];
  const c10::SymInt channels = w.output.sym_size(0);
  const at::Tensor share = at::arange(channels, exact) / std::max<int64_t>(w.output.size(0) - 1, 1);
  const at::Tensor pace = at::pow(kLongest / kShortest, -share) / kShortest;  // 1 / tau
  const at::Tensor window = (at::arange(length, exact).unsqueeze(1) * -pace).exp() * (1 - (-2 * pace).exp()).sqrt();
  return raw.to(exact.dtype()) * window;
}

at::Tensor long_convolution(const at::Tensor& u, const FilterWeights& w, const CausalTokens& tokens, const Batch& batch,
                            MixerState* state) {
  if (u.sym_size(1) == 0) return u;
  // What is not real is behind the real tokens; zeros also keep the rounding of a transform out of its gradient.
  const at::Tensor real = tokens.real ? u.masked_fill(tokens.real->logical_not().unsqueeze(-1), 0) : u;
  const auto convolved = [&] {
    if (state) return after_state(real, w, tokens, *state);
    const at::Tensor h = long_filter(w, u.sym_size(1));
    return without_state(real.to(h.scalar_type()), h, batch);
  };
  return convolved().to(u.scalar_type());
}

MemoryPart long_convolution_memory(int64_t channels, at::ScalarType dtype) { return {kCache, {channels}, dtype}; }

}  // namespace fem
