// The definition of linear_read in plain ATen: any device, any float dtype, differentiable, time and memory linear in
// T.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/differentiate.h"
#include "ops/linear_read/linear_read.h"
#include "ops/recurrent.h"
#include "ops/sequences.h"

namespace fem {
namespace {

constexpr int64_t kChunk = 64;

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }  // [B, T, H, *] <-> [B, H, T, *]

// sum_{tau=i+1..t} g_tau at [..., t, i]. Summed, not subtracted: -inf forgets, and near tokens stay exact anywhere.
at::Tensor between(const at::Tensor& g) {
  const int64_t n = g.size(-1);
  const at::Tensor later = at::ones({n, n}, g.options().dtype(at::kBool)).tril(-1);
  return g.unsqueeze(-1).expand({g.size(0), g.size(1), n, n}).masked_fill(later.logical_not(), 0).cumsum(-2);
}

// One scan, heads first: what query, key [B, H, T, K], mixed [B, H, T, X] and g [B, H, T] (undefined: 0) add up to.
struct Scan {
  at::Tensor sums, state;  // [B, H, T, X], [B, H, K, X]
};

Scan scan(const at::Tensor& query, const at::Tensor& key, const at::Tensor& mixed, const at::Tensor& g,
          at::Tensor state, bool strict) {
  std::vector<at::Tensor> sums;
  for (int64_t begin = 0; begin < query.size(2); begin += kChunk) {
    const auto part = [&](const at::Tensor& x) { return x.slice(2, begin, begin + kChunk); };
    const at::Tensor q = part(query), x = part(mixed);
    at::Tensor k = part(key);
    at::Tensor weights = at::matmul(q, k.transpose(2, 3)), read = at::matmul(q, state);
    if (g.defined()) {
      const at::Tensor decay = between(part(g)).exp(), since_begin = part(g).cumsum(-1).exp();
      weights = weights * decay;
      read = read * since_begin.unsqueeze(-1);
      k = k * decay.select(-2, -1).unsqueeze(-1);
      state = state * since_begin.select(-1, -1).unsqueeze(-1).unsqueeze(-1);
    }
    sums.push_back(at::matmul(weights.tril(strict ? -1 : 0), x) + read);
    state = state + at::matmul(k.transpose(2, 3), x);
  }
  return {sums.empty() ? mixed : at::cat(sums, 2), state};
}

}  // namespace

RecurrentRead linear_scan_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const OptionalTensor& beta, const OptionalTensor& log_decay,
                                     const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                     const OptionalTensor& initial, bool strict) {
  const auto exact = at::toOpMathType(value.scalar_type());
  // Masked tokens do not exist: whatever they hold, even NaN, must not meet a weight of 0.
  const auto real = [&](const at::Tensor& x) {
    const at::Tensor y = x.to(exact);
    if (!key_mask) return y;
    const at::Tensor hidden = key_mask->logical_not().unsqueeze(-1);
    return y.masked_fill(x.dim() == 4 ? hidden.unsqueeze(-1) : hidden, 0);
  };
  const int64_t width = value.size(3);
  const at::Tensor q = heads_first(query.to(exact)), k = heads_first(real(key)), v = real(value);
  const at::Tensor g = log_decay ? heads_first(real(*log_decay)) : at::Tensor();
  const at::Tensor b = beta ? beta->to(exact) : at::Tensor();
  std::vector<at::Tensor> columns{v};
  if (beta) columns.push_back(at::exp(b * v));
  columns.push_back(at::ones({v.size(0), v.size(1), v.size(2), 1}, v.options()));
  const at::Tensor x = heads_first(at::cat(columns, 3));

  const std::vector<Sequence> sequences = sequences_of(query.size(0), query.size(1), cu_seqlens, "linear_read");
  const at::Tensor start =
      initial
          ? *initial
          : at::zeros({static_cast<int64_t>(sequences.size()), query.size(2), query.size(3), x.size(3)}, x.options());
  at::Tensor sums, state;
  if (cu_seqlens) {
    std::vector<at::Tensor> all_sums, all_states;
    for (size_t n = 0; n < sequences.size(); ++n) {
      const auto part = [&](const at::Tensor& y) {
        return y.defined() ? y.slice(2, sequences[n].begin, sequences[n].end) : y;
      };
      const Scan one = scan(part(q), part(k), part(x), part(g), start.narrow(0, static_cast<int64_t>(n), 1), strict);
      all_sums.push_back(one.sums);
      all_states.push_back(one.state);
    }
    sums = at::cat(all_sums, 2), state = at::cat(all_states, 0);
  } else {
    const Scan all = scan(q, k, x, g, start, strict);
    sums = all.sums, state = all.state;
  }

  sums = heads_first(sums);
  const at::Tensor total = sums.slice(3, -1), empty = total == 0, one = total.masked_fill(empty, 1);
  RecurrentRead read;
  read.mean = (sums.slice(3, 0, width).masked_fill(empty, 0) / one).to(value.scalar_type());
  read.log_normalizer = one.log().masked_fill(empty, -INFINITY).squeeze(-1);
  if (beta) read.free_energy = (sums.slice(3, width, 2 * width).masked_fill(empty, 1) / one).log() / b;
  read.state = state;
  return read;
}

RecurrentRead linear_read_definition(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const std::optional<at::Tensor>& beta, const std::optional<at::Tensor>& log_decay,
                                     const RecurrentReadOptions& options) {
  return read_in_directions("linear_read", value, beta, options, [&](const Direction& to) {
    return linear_scan_definition(to.turn(query), to.turn(key), to.turn(value), beta, to.turn(log_decay),
                                  to.options.key_mask, to.options.cu_seqlens, to.options.initial, to.strict());
  });
}

Tensors6 linear_read_definition_backward(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                         const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                         const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                         const OptionalTensor& beta, const OptionalTensor& log_decay,
                                         const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                         const OptionalTensor& initial, bool strict, const at::Tensor&,
                                         const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  const at::Tensor none;
  const auto definition = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    const RecurrentRead read = linear_scan_definition(x[0], x[1], x[2], if_defined(x[3]), if_defined(x[4]), key_mask,
                                                      cu_seqlens, if_defined(x[5]), strict);
    return {read.mean, read.free_energy, read.log_normalizer, read.state};
  };
  const std::vector<at::Tensor> d = gradient_of(
      definition, {query, key, value, beta.value_or(none), log_decay.value_or(none), initial.value_or(none)},
      {grad_mean.value_or(none), beta ? grad_free_energy.value_or(none) : none, grad_log_normalizer.value_or(none),
       grad_state.value_or(none)});
  const auto given = [&](const at::Tensor& x) {
    return x.defined() ? x.contiguous() : at::empty({0}, query.options());
  };
  return {given(d[0]), given(d[1]), given(d[2]), given(d[3]), given(d[4]), given(d[5])};
}

}  // namespace fem
