// linear_read on devices without kernels of their own: chunks in batched products (ops/chunks.h).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/chunks.h"
#include "ops/linear_read/linear_read.h"

namespace fem {
namespace {

ChunkScan chunks_of_linear(const at::Tensor& query, const at::Tensor& value, const OptionalTensor& beta, bool strict) {
  constexpr int64_t kTokens = 64;
  const auto exact = at::toOpMathType(value.scalar_type());
  const int64_t heads = query.size(2), key = query.size(3), mixed = value.size(3) * (beta ? 2 : 1) + 1;
  ChunkScan scan;
  scan.most_tokens = kTokens;
  scan.token_memory = heads * (4 * kTokens + 4 * (2 * key + mixed) + 6 * key * mixed / kTokens);
  // K^T X with every key decayed to the end of its chunk, and the decay over the chunk.
  scan.summarise = [=](const ChunkRows& rows) -> std::vector<at::Tensor> {
    const auto real = [&](const at::Tensor& x) {
      const at::Tensor y = x.to(exact);
      if (!rows.real) return y;
      const at::Tensor hidden = rows.real->logical_not().unsqueeze(-1);
      return y.masked_fill(x.dim() == 4 ? hidden.unsqueeze(-1) : hidden, 0);
    };
    at::Tensor k = real(rows.tokens[1]), over;
    const at::Tensor v = real(rows.tokens[2]), &beta = rows.parameters[0];
    if (rows.tokens[3].defined()) {
      const at::Tensor g = real(rows.tokens[3]);
      const at::Tensor next = at::cat({g.slice(1, 1), at::zeros_like(g.slice(1, 0, 1))}, 1);
      k = k * next.flip(1).cumsum(1).flip(1).exp().unsqueeze(-1);
      over = g.sum(1).exp().unsqueeze(-1).unsqueeze(-1);
    }
    std::vector<at::Tensor> columns{v};
    if (beta.defined()) columns.push_back(at::exp(beta * v));
    columns.push_back(at::ones_like(v.slice(3, 0, 1)));
    const at::Tensor added = at::matmul(k.permute({0, 2, 3, 1}), at::cat(columns, 3).transpose(1, 2));
    return over.defined() ? std::vector<at::Tensor>{added, over} : std::vector<at::Tensor>{added};
  };
  scan.advance = [](const at::Tensor& before, const std::vector<at::Tensor>& summary) {
    return (summary.size() > 1 ? before * summary[1] : before) + summary[0];
  };
  scan.read = [=](const ChunkRows& rows, const at::Tensor& before) -> std::vector<at::Tensor> {
    const RecurrentRead read =
        linear_scan_definition(rows.tokens[0], rows.tokens[1], rows.tokens[2], if_defined(rows.parameters[0]),
                               if_defined(rows.tokens[3]), rows.real, std::nullopt, before, strict);
    return {read.mean, read.free_energy, read.log_normalizer};
  };
  return scan;
}

ScanInputs inputs_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& beta, const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                     const OptionalTensor& cu_seqlens, const OptionalTensor& initial) {
  const auto exact = value.options().dtype(at::toOpMathType(value.scalar_type()));
  const int64_t sequences = cu_seqlens ? cu_seqlens->size(0) - 1 : value.size(0);
  const int64_t mixed = value.size(3) * (beta ? 2 : 1) + 1;
  return {{query, key, value, log_decay.value_or(at::Tensor())},
          {beta ? beta->to(exact) : at::Tensor()},
          initial ? *initial : at::zeros({sequences, value.size(2), query.size(3), mixed}, exact),
          key_mask,
          cu_seqlens};
}

}  // namespace

Tensors5 linear_scan_in_chunks(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const OptionalTensor& beta, const OptionalTensor& log_decay,
                               const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                               const OptionalTensor& initial, bool strict) {
  if (value.numel() == 0)
    return linear_scan_by_definition(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial, strict);
  const ScanOutputs out = scan_in_chunks("linear_read", chunks_of_linear(query, value, beta, strict),
                                         inputs_of(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial));
  return {out.reads[0], beta ? out.reads[1] : at::empty({0}, out.state.options()), out.reads[2], out.state,
          empty_linear_checkpoints(query, value, beta)};
}

Tensors6 linear_scan_backward_in_chunks(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                        const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                        const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                        const OptionalTensor& beta, const OptionalTensor& log_decay,
                                        const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                        const OptionalTensor& initial, bool strict, const at::Tensor& mean,
                                        const at::Tensor& free_energy, const at::Tensor& log_normalizer,
                                        const at::Tensor& checkpoints) {
  if (value.numel() == 0)
    return linear_read_definition_backward(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, query, key,
                                           value, beta, log_decay, key_mask, cu_seqlens, initial, strict, mean,
                                           free_energy, log_normalizer, checkpoints);
  const at::Tensor none, absent = at::empty({0}, query.options());
  const ScanGradients d = gradient_in_chunks(
      "linear_read", chunks_of_linear(query, value, beta, strict),
      inputs_of(query, key, value, beta, log_decay, key_mask, cu_seqlens, initial),
      {{grad_mean.value_or(none), beta ? grad_free_energy.value_or(none) : none, grad_log_normalizer.value_or(none)},
       grad_state.value_or(none)});
  return {d.tokens[0],
          d.tokens[1],
          d.tokens[2],
          beta ? d.parameters[0].to(beta->scalar_type()) : absent,
          log_decay ? d.tokens[3] : absent,
          initial ? d.initial : absent};
}

}  // namespace fem
