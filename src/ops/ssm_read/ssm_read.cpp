// fem::ssm_read and the scan under it.
#include "ops/ssm_read/ssm_read.h"

#include <ATen/OpMathType.h>

#include "ops/checks.h"
#include "ops/register.h"
#include "ops/ssm_read/cpu/kernels.h"

namespace fem {
namespace {

std::vector<c10::SymInt> state_shape(const SsmScanOp::Inputs& in) {
  return {sequence_count(in.value, in.cu_seqlens), in.streams(), in.A.sym_size(0), in.A.sym_size(1), in.A.sym_size(2)};
}

}  // namespace

void SsmScanOp::check(const Inputs& in) {
  const char* op = kCalled;
  const at::Tensor& value = in.value;
  check_recurrent(op, value, in.beta, in.key_mask, in.cu_seqlens);
  const auto batch = value.sym_size(0), tokens = value.sym_size(1), heads = value.sym_size(2),
             width = value.sym_size(3);
  check_like(op, "delta", in.delta, "value", value, {batch, tokens, heads, width});
  check_like(op, "A", in.A, "value", value, {heads, width, kAnySize});
  check_like(op, "D", in.D, "value", value, {heads, width});
  check_like(op, "B", in.B, "value", value, {batch, tokens, in.A.sym_size(2)});
  check_like(op, "C", in.C, "value", value, {batch, tokens, in.A.sym_size(2)});
  if (in.initial)
    check_exact(op, "initial", *in.initial, state_shape(in), at::toOpMathType(value.scalar_type()),
                in.beta ? "(the state of an earlier call with beta)" : "(the state of an earlier call without beta)");
}

std::vector<Spec> SsmScanOp::outputs(const Inputs& in) {
  using namespace ssm_kernels;
  const auto dtype = in.value.scalar_type(), exact = at::toOpMathType(dtype);
  const auto shape = in.value.sym_sizes().vec();
  // One state per chunk and room for one more per sequence, in lines of channels.
  const auto lines = (shape[2] * shape[3] + kChannels - 1) / kChannels;
  const std::vector<c10::SymInt> none{0},
      checkpoints{shape[0] * (shape[1] / kChunk) + sequence_count(in.value, in.cu_seqlens), in.streams(),
                  in.A.sym_size(2), lines * kChannels};
  return {{shape, dtype},
          {in.beta ? shape : none, exact},
          {shape, exact},
          {state_shape(in), exact},
          {dtype == at::kDouble ? none : checkpoints, exact}};
}

namespace {

auto inputs_of(const at::Tensor& value, const OptionalTensor& beta, const Ssm& ssm) {
  return [&](const Direction& d) -> SsmScanOp::Inputs {
    return {d.reversed(value),
            beta,
            d.reversed(ssm.delta),
            ssm.A,
            d.reversed(ssm.B),
            d.reversed(ssm.C),
            ssm.D,
            d.options.initial,
            d.options.key_mask,
            d.options.cu_seqlens,
            d.strict(),
            ssm.delayed};
  };
}

}  // namespace

RecurrentRead ssm_read(const at::Tensor& value, const OptionalTensor& beta, const Ssm& ssm,
                       const RecurrentReadOptions& options) {
  return read_in_directions(SsmScanOp::kCalled, call<SsmScanOp>, value, beta, options, inputs_of(value, beta, ssm));
}

RecurrentRead ssm_read_definition(const at::Tensor& value, const OptionalTensor& beta, const Ssm& ssm,
                                  const RecurrentReadOptions& options) {
  return read_in_directions(SsmScanOp::kCalled, checked_definition<SsmScanOp>, value, beta, options,
                            inputs_of(value, beta, ssm));
}

FEM_REGISTER_OPERATOR(SsmScanOp)

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "ssm_read(Tensor value, Tensor? beta, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D, "
      "bool delayed=False, bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta, const at::Tensor& A,
         const at::Tensor& B, const at::Tensor& C, const at::Tensor& D, bool delayed, bool causal,
         const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens, const OptionalTensor& initial) {
        return as_tuple(ssm_read(value, beta, {delta, A, B, C, D, delayed}, {causal, key_mask, cu_seqlens, initial}));
      });
}

}  // namespace fem
