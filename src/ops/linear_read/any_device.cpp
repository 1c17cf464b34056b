// linear_read on devices without kernels of their own: chunks in batched products (ops/chunks.h).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "ops/autograd.h"
#include "ops/chunks.h"
#include "ops/linear_read/linear_read.h"

namespace fem {
namespace {

// Tokens: query, key, value, log_decay. Parameters: beta.
ChunkScan chunks_of(const LinearScanOp::Inputs& in, int64_t portion_memory) {
  constexpr int64_t kTokens = 64;
  const auto exact = at::toOpMathType(in.value.scalar_type());
  const int64_t heads = in.query.size(2), key = in.query.size(3), mixed = in.columns().expect_int();
  ChunkScan scan;
  scan.most_tokens = kTokens;
  scan.portion_memory = portion_memory;
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
  scan.read = [strict = in.strict](const ChunkRows& rows, const at::Tensor& before) -> TensorVector {
    const ScanReads read =
        LinearScanOp::definition({rows.tokens[0], rows.tokens[1], rows.tokens[2], if_defined(rows.parameters[0]),
                                  if_defined(rows.tokens[3]), before, rows.real, std::nullopt, strict});
    return {read.mean, read.free_energy, read.log_normalizer};
  };
  return scan;
}

ScanInputs scan_inputs(const LinearScanOp::Inputs& in) {
  const auto exact = in.value.options().dtype(at::toOpMathType(in.value.scalar_type()));
  const c10::SymInt count = sequence_count(in.value, in.cu_seqlens);
  return {{in.query, in.key, in.value, or_undefined(in.log_decay)},
          {in.beta ? in.beta->to(exact) : at::Tensor()},
          in.initial ? *in.initial : at::zeros_symint({count, in.value.size(2), in.query.size(3), in.columns()}, exact),
          in.key_mask,
          in.cu_seqlens};
}

}  // namespace

LinearScanOp::Outputs LinearScanOp::elsewhere(const Inputs& in, int64_t portion_memory) {
  if (in.value.numel() == 0) return definition(in);
  return scan_in_chunks(kCalled, chunks_of(in, portion_memory), scan_inputs(in));
}

LinearScanOp::Inputs LinearScanOp::gradient_elsewhere(const BackwardOf<LinearScanOp>& b, int64_t portion_memory) {
  if (b.in.value.numel() == 0) return gradient_of_definition(b);
  const ScanGradients d = gradient_in_chunks(kCalled, chunks_of(b.in, portion_memory), scan_inputs(b.in), b.grads);
  return {d.tokens[0], d.tokens[1], d.tokens[2], d.parameters[0], d.tokens[3], d.initial, {}, {}, false};
}

}  // namespace fem
