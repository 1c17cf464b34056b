// ssm_read on devices without kernels of their own: the definition on chunks side by side (ops/chunks.h).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/chunks.h"
#include "ops/ssm_read/ssm_read.h"

namespace fem {
namespace {

// Tokens: value, delta, B, C. Parameters: beta, A, D.
ChunkScan chunks_of_ssm(const SsmInputs& in) {
  constexpr int64_t kTokens = 32;
  const auto rows_of = [strict = in.strict, delayed = in.delayed](const ChunkRows& rows,
                                                                  const OptionalTensor& initial) -> SsmInputs {
    const auto& [value, delta, B, C] = std::tie(rows.tokens[0], rows.tokens[1], rows.tokens[2], rows.tokens[3]);
    return {value,
            if_defined(rows.parameters[0]),
            delta,
            rows.parameters[1],
            B,
            C,
            rows.parameters[2],
            rows.real,
            std::nullopt,
            initial,
            strict,
            delayed};
  };
  ChunkScan scan;
  scan.most_tokens = kTokens;
  scan.token_memory = (2 + 2 * in.streams()) * in.A.numel();
  // The state from nothing, and the decay over the chunk.
  scan.summarise = [=](const ChunkRows& rows) -> std::vector<at::Tensor> {
    const at::Tensor added = std::get<3>(ssm_scan_definition(rows_of(rows, std::nullopt)));
    at::Tensor delta = rows.tokens[1].to(added.scalar_type());
    if (rows.real) delta = delta.masked_fill(rows.real->logical_not().unsqueeze(-1).unsqueeze(-1), 0);
    return {added, at::exp(delta.sum(1).unsqueeze(1).unsqueeze(-1) * rows.parameters[1])};
  };
  scan.advance = [](const at::Tensor& before, const std::vector<at::Tensor>& summary) {
    return summary[1] * before + summary[0];
  };
  scan.read = [=](const ChunkRows& rows, const at::Tensor& before) -> std::vector<at::Tensor> {
    const auto [mean, free_energy, log_normalizer, state, checkpoints] = ssm_scan_definition(rows_of(rows, before));
    return {mean, rows.parameters[0].defined() ? free_energy : at::Tensor(), log_normalizer};
  };
  return scan;
}

ScanInputs scan_inputs(const SsmInputs& in) {
  const auto exact = in.value.options().dtype(at::toOpMathType(in.value.scalar_type()));
  const int64_t sequences = in.cu_seqlens ? in.cu_seqlens->size(0) - 1 : in.value.size(0);
  return {
      {in.value, in.delta, in.B, in.C},
      {in.beta ? in.beta->to(exact) : at::Tensor(), in.A.to(exact), in.D.to(exact)},
      in.initial ? *in.initial : at::zeros({sequences, in.streams(), in.A.size(0), in.A.size(1), in.A.size(2)}, exact),
      in.key_mask,
      in.cu_seqlens};
}

}  // namespace

SsmReadOutputs ssm_scan_in_chunks(const SsmInputs& in) {
  if (in.value.numel() == 0) return ssm_scan_definition(in);
  const ScanOutputs out = scan_in_chunks("ssm_read", chunks_of_ssm(in), scan_inputs(in));
  return {out.reads[0], in.beta ? out.reads[1] : at::empty({0}, out.state.options()), out.reads[2], out.state,
          at::empty({0}, out.state.options())};
}

SsmReadGradients ssm_scan_gradient_in_chunks(const SsmGrads& grads, const SsmInputs& in) {
  if (in.value.numel() == 0) return ssm_scan_definition_gradient(grads, in);
  const auto or_none = [](const OptionalTensor& x) { return x.value_or(at::Tensor()); };
  const ScanGradients d = gradient_in_chunks(
      "ssm_read", chunks_of_ssm(in), scan_inputs(in),
      {{or_none(grads.mean), in.beta ? or_none(grads.free_energy) : at::Tensor(), or_none(grads.log_normalizer)},
       or_none(grads.state)});
  const auto dtype = in.value.scalar_type();
  const at::Tensor absent = at::empty({0}, in.value.options());
  return {d.tokens[0],
          in.beta ? d.parameters[0].to(dtype) : absent,
          d.tokens[1],
          d.parameters[1].to(dtype),
          d.tokens[2],
          d.tokens[3],
          d.parameters[2].to(dtype),
          in.initial ? d.initial : absent};
}

}  // namespace fem
