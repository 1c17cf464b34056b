#include "mixer/look.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "fem/energy.h"
#include "mixer/hidden_temperature.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor where_positive(const at::Tensor& p, const at::Tensor& x) { return at::where(p > 0, x, 0.0); }

at::Tensor entropy_of(const at::Tensor& p, const at::Tensor& log_p) { return -where_positive(p, p * log_p).sum(-1); }

// exp of the entropy of the singular values of [..., V, T], as shares: 1 if all rows are alike.
at::Tensor effective_rank(const at::Tensor& weights) {
  const at::Tensor gram = at::matmul(weights, weights.transpose(-2, -1));
  const at::Tensor singular = at::linalg_eigvalsh(gram).clamp_min(0).sqrt();
  const at::Tensor share = singular / singular.sum(-1, true).clamp_min(1e-300);
  return (-at::xlogy(share, share).sum(-1)).exp();
}

at::Tensor choice_of(const at::Tensor& weights, const at::Tensor& empty) {
  return weights.argmax(-1).masked_fill(empty.squeeze(-1), -1);
}

// The read of the tokens first ... last - 1, beyond which none is seen.
struct Span {
  int64_t first = 0, last = 0;
};
Span seen_span(const at::Tensor& log_weights) {
  const at::Tensor seen = log_weights.ne(-INFINITY).flatten(0, -2).any(0).nonzero().squeeze(-1);
  if (seen.numel() == 0) return {0, std::min<int64_t>(1, log_weights.size(-1))};
  return {seen[0].item<int64_t>(), seen[-1].item<int64_t>() + 1};
}

Inspection look_within(const ChosenRead& read) {
  const at::Tensor hidden = read.log_weights == -INFINITY, empty = hidden.all(-1, true);
  const at::Tensor log_p = read.log_weights.masked_fill(empty, 0).log_softmax(-1).masked_fill(hidden, -INFINITY);
  const at::Tensor p = log_p.exp();
  const at::Tensor value = where_positive(p, read.value.permute({0, 2, 3, 1}).unsqueeze(1));  // [B, N, H, V, T]

  Inspection i;
  i.prior = p;
  i.mean = (p * value).sum(-1);
  i.prior_entropy = entropy_of(p, log_p);
  i.lambda = read.lambda.defined() ? read.lambda : at::zeros_like(i.mean);
  i.outer_gate = read.outer_gate.defined() ? read.outer_gate : at::ones_like(i.mean);
  i.prior_choice = choice_of(p, empty).expand_as(i.mean);
  i.prior_rank = effective_rank(p);
  if (!read.beta) {
    i.posterior = p.expand_as(value);
    i.beta = at::zeros({value.size(2), value.size(3)}, value.options());
    i.hidden_beta = i.kl_pq = i.kl_qp = at::zeros_like(i.mean);
    i.free_energy = i.gated = i.mean;
    i.entropy = i.prior_entropy.expand_as(i.mean);
    i.choice = i.prior_choice;
    i.rank = i.prior_rank;
    return i;
  }
  i.beta = *read.beta;
  const at::Tensor energies = log_p + i.beta.unsqueeze(-1) * value;
  const at::Tensor log_z = energies.masked_fill(empty, 0).logsumexp(-1, true).masked_fill(empty, 0);
  const at::Tensor log_q = energies - log_z;
  i.posterior = log_q.exp();
  i.free_energy = log_z.squeeze(-1) / i.beta;
  i.gated = i.mean + i.lambda * (i.free_energy - i.mean);
  i.hidden_beta = hidden_temperature(p, value, i.lambda, i.beta.expand_as(i.mean));
  i.kl_pq = where_positive(p, p * (log_p - log_q)).sum(-1);
  i.kl_qp = where_positive(i.posterior, i.posterior * (log_q - log_p)).sum(-1);
  i.entropy = entropy_of(i.posterior, log_q);
  i.choice = choice_of(i.posterior, empty);
  const at::Tensor share = i.lambda.unsqueeze(-1);
  i.rank = effective_rank((1 - share) * p + share * i.posterior);
  return i;
}

}  // namespace

Inspection look(const ChosenRead& read) {
  // A causal token sees half of all on average: what no chosen one sees is left out, and put back as zeros.
  const int64_t tokens = read.log_weights.size(-1);
  const auto [first, last] = seen_span(read.log_weights);
  ChosenRead within = read;
  within.log_weights = read.log_weights.slice(-1, first, last);
  within.value = read.value.slice(1, first, last);
  Inspection i = look_within(within);
  for (at::Tensor* weights : {&i.prior, &i.posterior}) *weights = at::constant_pad_nd(*weights, {first, tokens - last});
  for (at::Tensor* choice : {&i.prior_choice, &i.choice}) *choice = at::where(*choice >= 0, *choice + first, -1);
  return i;
}

at::Tensor seen_by(const at::Tensor& chosen, int64_t tokens, const MixerOptions& options, const Batch& batch) {
  const at::Tensor index = at::arange(tokens, chosen.options()), before = chosen.unsqueeze(-1) - index;  // [N, T]
  at::Tensor seen = at::ones({1, chosen.size(0), tokens}, chosen.options().dtype(at::kBool));
  if (options.causal) seen = seen.logical_and(before >= 0);
  if (options.window) seen = seen.logical_and(before.abs() < *options.window);
  if (batch.cu_seqlens) {
    const at::Tensor sequence = at::bucketize(index, *batch.cu_seqlens, /*out_int32=*/false, /*right=*/true);
    seen = seen.logical_and(sequence.index_select(0, chosen).unsqueeze(-1) == sequence);
  }
  if (batch.mask) seen = seen.logical_and(batch.mask->unsqueeze(1));
  return seen;
}

at::Tensor chosen_tokens(const char* who, const std::vector<int64_t>& positions, const at::Tensor& x) {
  FEM_CHECK(x.dim() == 3, who, ": expected x of shape [B, T, D], got ", shape_of(x));
  for (const int64_t position : positions)
    FEM_CHECK(position >= 0 && position < x.size(1), who, ": expected positions from 0 to T - 1 = ", x.size(1) - 1,
              ", got ", position);
  return at::tensor(positions, x.options().dtype(at::kLong));
}

void add_energy(Inspection& inspection, const at::Tensor& query, const at::Tensor& key, const at::Tensor& chosen) {
  const EnergyOptions products{.potential = Potential::kProduct};
  std::vector<at::Tensor> energies, slopes;
  for (int64_t n = 0; n < chosen.size(0); ++n) {
    const int64_t t = chosen[n].item<int64_t>();
    const at::Tensor own = query.slice(1, t, t + 1), past = key.slice(1, 0, t + 1);
    energies.push_back(energy(own, past, products));
    slopes.push_back(energy_gradient(own, past, products).norm(2, -1));
  }
  if (energies.empty()) return;
  inspection.energy = at::cat(energies, 1);
  inspection.energy_gradient = at::cat(slopes, 1);
}

}  // namespace fem
