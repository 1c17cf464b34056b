// ssm_read on devices without kernels of their own: the definition on chunks side by side (ops/chunks.h).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/autograd.h"
#include "ops/chunks.h"
#include "ops/ssm_read/ssm_read.h"

namespace fem {
namespace {

// Tokens: value, delta, B, C. Parameters: beta, A, D.
ChunkScan chunks_of(const SsmScanOp::Inputs& in, int64_t portion_memory) {
  constexpr int64_t kTokens = 32;
  const auto rows_of = [strict = in.strict, delayed = in.delayed](const ChunkRows& rows,
                                                                  const OptionalTensor& initial) -> SsmScanOp::Inputs {
    const auto& [value, delta, B, C] = std::tie(rows.tokens[0], rows.tokens[1], rows.tokens[2], rows.tokens[3]);
    return {value,
            if_defined(rows.parameters[0]),
            delta,
            rows.parameters[1],
            B,
            C,
            rows.parameters[2],
            initial,
            rows.real,
            std::nullopt,
            strict,
            delayed};
  };
  ChunkScan scan;
  scan.most_tokens = kTokens;
  scan.portion_memory = portion_memory;
  scan.token_memory = (2 + 2 * in.streams()) * in.A.numel();
  // The state from nothing, and the decay over the chunk.
  scan.summarise = [=](const ChunkRows& rows) -> std::vector<at::Tensor> {
    const at::Tensor added = SsmScanOp::definition(rows_of(rows, std::nullopt)).state;
    at::Tensor delta = rows.tokens[1].to(added.scalar_type());
    if (rows.real) delta = delta.masked_fill(rows.real->logical_not().unsqueeze(-1).unsqueeze(-1), 0);
    return {added, at::exp(delta.sum(1).unsqueeze(1).unsqueeze(-1) * rows.parameters[1])};
  };
  scan.advance = [](const at::Tensor& before, const std::vector<at::Tensor>& summary) {
    return summary[1] * before + summary[0];
  };
  scan.read = [=](const ChunkRows& rows, const at::Tensor& before) -> std::vector<at::Tensor> {
    const ScanReads read = SsmScanOp::definition(rows_of(rows, before));
    return {read.mean, read.free_energy, read.log_normalizer};
  };
  return scan;
}

ScanInputs scan_inputs(const SsmScanOp::Inputs& in) {
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

SsmScanOp::Outputs SsmScanOp::elsewhere(const Inputs& in, int64_t portion_memory) {
  if (in.value.numel() == 0) return definition(in);
  return scan_in_chunks(kCalled, chunks_of(in, portion_memory), scan_inputs(in));
}

SsmScanOp::Inputs SsmScanOp::gradient_elsewhere(const BackwardOf<SsmScanOp>& b, int64_t portion_memory) {
  if (b.in.value.numel() == 0) return gradient_of_definition(b);
  const ScanGradients d = gradient_in_chunks(kCalled, chunks_of(b.in, portion_memory), scan_inputs(b.in), b.grads);
  return {d.tokens[0],
          d.parameters[0],
          d.tokens[1],
          d.parameters[1],
          d.tokens[2],
          d.tokens[3],
          d.parameters[2],
          d.initial,
          {},
          {},
          false,
          false};
}

}  // namespace fem
