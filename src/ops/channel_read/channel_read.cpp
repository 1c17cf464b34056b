// fem::channel_read and the scan under it: schema, checks and the choice between kernels and definition.
#include "ops/channel_read/channel_read.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "ops/channel_read/cpu/kernels.h"
#include "ops/recurrent.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kOp = "channel_read";

c10::SymInt sequences(const ChannelInputs& in) {
  return in.cu_seqlens ? in.cu_seqlens->sym_size(0) - 1 : in.value.sym_size(0);
}

void check(const ChannelInputs& in) {
  check_recurrent(kOp, in.value, in.beta, in.key_mask, in.cu_seqlens);
  FEM_CHECK(in.log_weight || in.log_decay, kOp,
            ": expected log_weight, log_decay or both, got neither (a running mean: log_weight = 0)");
  const auto shape = in.value.sym_sizes().vec();
  if (in.log_weight) check_like_value(kOp, "log_weight", *in.log_weight, in.value, shape);
  if (in.log_decay) check_like_value(kOp, "log_decay", *in.log_decay, in.value, shape);
  if (!in.initial) return;
  const at::Tensor& initial = *in.initial;
  const auto dtype = at::toOpMathType(in.value.scalar_type());
  FEM_CHECK(initial.dim() == 4 && initial.sym_size(0) == sequences(in) && initial.sym_size(1) == 1 + in.streams() &&
                initial.sym_size(2) == shape[2] && initial.sym_size(3) == shape[3] && initial.scalar_type() == dtype &&
                initial.device() == in.value.device(),
            kOp, ": expected initial as ", dtype, " [N=", sequences(in), ", ", 1 + in.streams(), ", H=", shape[2],
            ", V=", shape[3], "] on ", in.value.device(), " (the state of an earlier call), got ",
            initial.scalar_type(), " ", shape_of(initial), " on ", initial.device());
}

at::Tensor none_like(const at::Tensor& x) { return at::empty({0}, x.options()); }

at::TensorOptions state_options(const ChannelInputs& in) {
  return in.value.options().dtype(at::toOpMathType(in.value.scalar_type()));
}

template <RecurrentRead (*scan)(const ChannelInputs&)>
Tensors5 read_by(const ChannelInputs& in) {
  const RecurrentRead read = scan(in);
  return {read.mean.contiguous(), in.beta ? read.free_energy.contiguous() : at::empty({0}, state_options(in)),
          read.log_normalizer.contiguous(), read.state.contiguous(),
          at::empty_symint(checkpoint_shape(in), state_options(in))};
}

Tensors5 read_on_cpu(const ChannelInputs& in) {
  return in.value.scalar_type() == at::kDouble ? read_by<channel_scan_definition>(in) : channel_read_cpu(in);
}

Tensors5 read_shapes(const ChannelInputs& in) {
  const auto shape = in.value.sym_sizes();
  return {at::empty_symint(shape, in.value.options()),
          in.beta ? at::empty_symint(shape, state_options(in)) : at::empty({0}, state_options(in)),
          at::empty_symint(shape, state_options(in)),
          at::empty_symint({sequences(in), 1 + in.streams(), shape[2], shape[3]}, state_options(in)),
          at::empty_symint(checkpoint_shape(in), state_options(in))};
}

Tensors5 gradient_anywhere(const ChannelGradients& grads, const ChannelInputs& in, const at::Tensor&) {
  return channel_scan_gradient_in_chunks(grads, in);
}

Tensors5 gradient_on_cpu(const ChannelGradients& grads, const ChannelInputs& in, const at::Tensor& checkpoints) {
  return in.value.scalar_type() == at::kDouble ? channel_scan_gradient(grads, in)
                                               : channel_read_backward_cpu(grads, in, checkpoints);
}

Tensors5 gradient_shapes(const ChannelGradients&, const ChannelInputs& in, const at::Tensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x ? at::empty_symint(x->sym_sizes(), x->options()) : none_like(in.value);
  };
  return {like(in.value), like(in.beta), like(in.log_weight), like(in.log_decay), like(in.initial)};
}

// The registered forms of the functions above.
template <Tensors5 (*read)(const ChannelInputs&)>
Tensors5 checked(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                 const OptionalTensor& log_decay, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                 const OptionalTensor& initial, bool strict) {
  const ChannelInputs in{value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict};
  check(in);
  return read(in);
}

template <Tensors5 (*gradient)(const ChannelGradients&, const ChannelInputs&, const at::Tensor&)>
Tensors5 gathered(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                  const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state, const at::Tensor& value,
                  const OptionalTensor& beta, const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                  const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens, const OptionalTensor& initial,
                  const at::Tensor& checkpoints, bool strict) {
  return gradient({grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
                  {value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict}, checkpoints);
}

}  // namespace

std::vector<c10::SymInt> checkpoint_shape(const ChannelInputs& in) {
  if (in.value.scalar_type() == at::kDouble) return {0};
  // A sequence of n tokens that begins at token b has its checkpoints from b / kChunk on, one further for every
  // sequence before it: room for all, whatever their lengths.
  const c10::SymInt whole = in.value.sym_size(1) / channel_kernels::kChunk;
  const c10::SymInt count = in.cu_seqlens ? whole + sequences(in) : (whole + 1) * in.value.sym_size(0);
  return {count, 1 + in.streams(), in.value.sym_size(2), in.value.sym_size(3)};
}

Tensors5 channel_scan_by_definition(const at::Tensor& value, const OptionalTensor& beta,
                                    const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                                    const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                    const OptionalTensor& initial, bool strict) {
  return checked<read_by<channel_scan_definition>>(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial,
                                                   strict);
}

Tensors5 call_channel_scan(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                           const OptionalTensor& log_decay, const OptionalTensor& key_mask,
                           const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict) {
  static const auto op = find_operator<ChannelScanOp>("fem::channel_scan");
  return op.call(value, beta, log_weight, log_decay, key_mask, cu_seqlens, initial, strict);
}

Tensors5 call_channel_scan_backward(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                    const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                    const at::Tensor& value, const OptionalTensor& beta,
                                    const OptionalTensor& log_weight, const OptionalTensor& log_decay,
                                    const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                    const OptionalTensor& initial, const at::Tensor& checkpoints, bool strict) {
  static const auto op = find_operator<ChannelScanBackwardOp>("fem::channel_scan_backward");
  return op.call(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, value, beta, log_weight, log_decay,
                 key_mask, cu_seqlens, initial, checkpoints, strict);
}

RecurrentRead channel_read(const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
                           const OptionalTensor& log_decay, const RecurrentReadOptions& options) {
  return read_in_directions(kOp, value, beta, options, [&](const Direction& d) {
    const auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_channel_scan(d.turn(value), beta, d.turn(log_weight), d.turn(log_decay), d.options.key_mask,
                          d.options.cu_seqlens, d.options.initial, d.strict());
    return RecurrentRead{{mean, beta ? free_energy : at::Tensor()}, log_normalizer, state};
  });
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "channel_read(Tensor value, Tensor? beta, Tensor? log_weight=None, Tensor? log_decay=None, "
      "bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& value, const OptionalTensor& beta, const OptionalTensor& log_weight,
         const OptionalTensor& log_decay, bool causal, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
         const OptionalTensor& initial) {
        return tensors_of(channel_read(value, beta, log_weight, log_decay, {causal, key_mask, cu_seqlens, initial}));
      });
  m.def(
      "channel_scan(Tensor value, Tensor? beta=None, Tensor? log_weight=None, Tensor? log_decay=None, "
      "Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None, bool strict=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)");
  m.def(
      "channel_scan_backward(Tensor? grad_mean, Tensor? grad_free_energy, Tensor? grad_log_normalizer, "
      "Tensor? grad_state, Tensor value, Tensor? beta, Tensor? log_weight, Tensor? log_decay, Tensor? key_mask, "
      "Tensor? cu_seqlens, Tensor? initial, Tensor checkpoints, bool strict) "
      "-> (Tensor value, Tensor beta, Tensor log_weight, Tensor log_decay, Tensor initial)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("channel_scan", checked<read_on_cpu>);
  m.impl("channel_scan_backward", gathered<gradient_on_cpu>);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("channel_scan", checked<read_shapes>);
  m.impl("channel_scan_backward", gathered<gradient_shapes>);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("channel_scan", announced<checked<read_by<channel_scan_in_chunks>>>);
  m.impl("channel_scan_backward", announced<gathered<gradient_anywhere>>);
}

}  // namespace fem
