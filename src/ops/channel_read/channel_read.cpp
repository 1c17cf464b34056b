// fem::channel_read and the scan under it.
#include "ops/channel_read/channel_read.h"

#include <ATen/OpMathType.h>

#include "ops/channel_read/cpu/kernels.h"
#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void ChannelScanOp::check(const Inputs& in) {
  const char* op = kCalled;
  check_recurrent(op, in.value, in.beta, in.key_mask, in.cu_seqlens);
  FEM_CHECK(in.log_weight || in.log_decay, op,
            ": expected log_weight, log_decay or both, got neither (a running mean: log_weight = 0)");
  const auto shape = in.value.sym_sizes().vec();
  if (in.log_weight) check_like(op, "log_weight", *in.log_weight, "value", in.value, shape);
  if (in.log_decay) check_like(op, "log_decay", *in.log_decay, "value", in.value, shape);
  if (in.initial)
    check_exact(op, "initial", *in.initial,
                {sequence_count(in.value, in.cu_seqlens), 1 + in.streams(), shape[2], shape[3]},
                at::toOpMathType(in.value.scalar_type()), "(the state of an earlier call)");
}

std::vector<Spec> ChannelScanOp::outputs(const Inputs& in) {
  const auto dtype = in.value.scalar_type(), exact = at::toOpMathType(dtype);
  const auto shape = in.value.sym_sizes().vec();
  const c10::SymInt sequences = sequence_count(in.value, in.cu_seqlens), rows = 1 + in.streams();
  // A sequence of n tokens that begins at token b has its checkpoints from b / kChunk on, one further for every
  // sequence before it: room for all, whatever their lengths.
  const c10::SymInt whole = shape[1] / channel_kernels::kChunk;
  const c10::SymInt count = in.cu_seqlens ? whole + sequences : (whole + 1) * shape[0];
  const std::vector<c10::SymInt> none{0}, checkpoints{count, rows, shape[2], shape[3]};
  return {{shape, dtype},
          {in.beta ? shape : none, exact},
          {shape, exact},
          {{sequences, rows, shape[2], shape[3]}, exact},
          {dtype == at::kDouble ? none : checkpoints, exact}};
}

namespace {

auto inputs_of(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
               const OptionalTensor& log_decay) {
  return [&](const Direction& d) -> ChannelScanOp::Inputs {
    return {d.reversed(value),      beta,
            d.reversed(log_weight), d.reversed(log_decay),
            d.options.initial,      d.options.key_mask,
            d.options.cu_seqlens,   d.strict()};
  };
}

}  // namespace

RecurrentRead channel_read(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                           const OptionalTensor& log_decay, const RecurrentReadOptions& options) {
  return read_in_directions(ChannelScanOp::kCalled, call<ChannelScanOp>, value, beta, options,
                            inputs_of(value, beta, log_weight, log_decay));
}

RecurrentRead channel_read_definition(const at::Tensor& value, const OptionalTensor& beta,
                                      const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                                      const RecurrentReadOptions& options) {
  return read_in_directions(ChannelScanOp::kCalled, checked_definition<ChannelScanOp>, value, beta, options,
                            inputs_of(value, beta, log_weight, log_decay));
}

FEM_REGISTER_OPERATOR(ChannelScanOp)

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "channel_read(Tensor value, Tensor? beta, Tensor? log_weight=None, Tensor? log_decay=None, "
      "bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
         const OptionalTensor& log_decay, bool causal, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
         const OptionalTensor& initial) {
        return as_tuple(channel_read(value, beta, log_weight, log_decay, {causal, key_mask, cu_seqlens, initial}));
      });
}

}  // namespace fem
