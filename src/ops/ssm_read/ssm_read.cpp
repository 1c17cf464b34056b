// fem::ssm_read and the scan under it: schema, checks and the choice between kernels and definition.
#include "ops/ssm_read/ssm_read.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "ops/recurrent.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kOp = "ssm_read";

c10::SymInt sequences(const SsmInputs& in) {
  return in.cu_seqlens ? in.cu_seqlens->sym_size(0) - 1 : in.value.sym_size(0);
}

at::ScalarType state_dtype(const SsmInputs& in) { return at::toOpMathType(in.value.scalar_type()); }

std::vector<c10::SymInt> state_shape(const SsmInputs& in) {
  return {sequences(in), in.streams(), in.A.sym_size(0), in.A.sym_size(1), in.A.sym_size(2)};
}

void check(const SsmInputs& in) {
  check_recurrent(kOp, in.value, in.beta, in.key_mask, in.cu_seqlens);
  const auto batch = in.value.sym_size(0), tokens = in.value.sym_size(1);
  const auto heads = in.value.sym_size(2), width = in.value.sym_size(3);
  check_like_value(kOp, "delta", in.delta, in.value, {batch, tokens, heads, width});
  check_like_value(kOp, "A", in.A, in.value, {heads, width, -1});
  check_like_value(kOp, "D", in.D, in.value, {heads, width});
  check_like_value(kOp, "B", in.B, in.value, {batch, tokens, in.A.sym_size(2)});
  check_like_value(kOp, "C", in.C, in.value, {batch, tokens, in.A.sym_size(2)});
  if (!in.initial) return;
  const auto shape = state_shape(in);
  FEM_CHECK(in.initial->sym_sizes() == c10::SymIntArrayRef(shape) && in.initial->scalar_type() == state_dtype(in) &&
                in.initial->device() == in.value.device(),
            kOp, ": expected initial as ", state_dtype(in), " [N=", shape[0], ", ", shape[1], ", H=", heads,
            ", V=", width, ", R=", shape[4], "] on ", in.value.device(), " (the state of an earlier call ",
            in.beta ? "with" : "without", " beta), got ", in.initial->scalar_type(), " ", shape_of(*in.initial), " on ",
            in.initial->device());
}

SsmReadOutputs contiguous(const SsmReadOutputs& out) {
  return std::apply([](const auto&... x) { return SsmReadOutputs{x.contiguous()...}; }, out);
}

SsmReadOutputs read_on_cpu(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                           const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                           const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                           const OptionalTensor& initial, bool strict, bool delayed) {
  const SsmInputs in{value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed};
  check(in);
  return value.scalar_type() == at::kDouble ? contiguous(ssm_scan_definition(in)) : ssm_read_cpu(in);
}

at::Tensor empty_checkpoints(const SsmInputs& in) {
  const auto wide = in.value.options().dtype(state_dtype(in));
  return in.value.scalar_type() == at::kDouble ? at::empty({0}, wide)
                                               : at::empty_symint(ssm_checkpoint_shape(in), wide);
}

// On every device, in chunks.
SsmReadOutputs read_anywhere(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                             const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                             const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                             const OptionalTensor& initial, bool strict, bool delayed) {
  const SsmInputs in{value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed};
  check(in);
  SsmReadOutputs out = contiguous(ssm_scan_in_chunks(in));
  std::get<4>(out) = empty_checkpoints(in);
  return out;
}

SsmReadOutputs read_shapes(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                           const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                           const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                           const OptionalTensor& initial, bool strict, bool delayed) {
  const SsmInputs in{value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed};
  check(in);
  const auto like = [&](const at::TensorOptions& options) { return at::empty_symint(value.sym_sizes(), options); };
  const auto wide = value.options().dtype(state_dtype(in));
  return {like(value.options()), beta ? like(wide) : at::empty({0}, wide), like(wide),
          at::empty_symint(state_shape(in), wide), empty_checkpoints(in)};
}

SsmReadGradients gradient_by_definition(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                        const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                        const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                        const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                                        const at::Tensor& D, const OptionalTensor& key_mask,
                                        const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                                        bool delayed, const at::Tensor&) {
  const SsmReadGradients d =
      ssm_scan_definition_gradient({grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
                                   {value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed});
  return std::apply([](const auto&... x) { return SsmReadGradients{x.contiguous()...}; }, d);
}

SsmReadGradients gradient_anywhere(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                   const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                   const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                   const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                                   const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                   const OptionalTensor& initial, bool strict, bool delayed, const at::Tensor&) {
  return ssm_scan_gradient_in_chunks({grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
                                     {value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed});
}

SsmReadGradients gradient_on_cpu(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                 const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                 const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                 const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                                 const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                                 const OptionalTensor& initial, bool strict, bool delayed,
                                 const at::Tensor& checkpoints) {
  if (value.scalar_type() == at::kDouble)
    return gradient_by_definition(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, value, beta, delta, A,
                                  B, C, D, key_mask, cu_seqlens, initial, strict, delayed, checkpoints);
  return ssm_read_backward_cpu({grad_mean, grad_free_energy, grad_log_normalizer, grad_state},
                               {value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed},
                               checkpoints);
}

SsmReadGradients gradient_shapes(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor&, const at::Tensor& value, const OptionalTensor& beta,
                                 const at::Tensor& delta, const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                                 const at::Tensor& D, const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor& initial, bool, bool, const at::Tensor&) {
  const auto like = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  const auto if_present = [&](const OptionalTensor& x) { return x ? like(*x) : at::empty({0}, value.options()); };
  return {like(value), if_present(beta), like(delta), like(A), like(B), like(C), like(D), if_present(initial)};
}

}  // namespace

SsmReadOutputs ssm_scan_by_definition(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                      const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                                      const at::Tensor& D, const OptionalTensor& key_mask,
                                      const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                                      bool delayed) {
  const SsmInputs in{value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed};
  check(in);
  return contiguous(ssm_scan_definition(in));
}

SsmReadOutputs call_ssm_scan(const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                             const at::Tensor& A, const at::Tensor& B, const at::Tensor& C, const at::Tensor& D,
                             const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens,
                             const OptionalTensor& initial, bool strict, bool delayed) {
  static const auto op = find_operator<SsmScanOp>("fem::ssm_scan");
  return op.call(value, beta, delta, A, B, C, D, key_mask, cu_seqlens, initial, strict, delayed);
}

SsmReadGradients call_ssm_scan_backward(const OptionalTensor& grad_mean, const OptionalTensor& grad_free_energy,
                                        const OptionalTensor& grad_log_normalizer, const OptionalTensor& grad_state,
                                        const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta,
                                        const at::Tensor& A, const at::Tensor& B, const at::Tensor& C,
                                        const at::Tensor& D, const OptionalTensor& key_mask,
                                        const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool strict,
                                        bool delayed, const at::Tensor& checkpoints) {
  static const auto op = find_operator<SsmScanBackwardOp>("fem::ssm_scan_backward");
  return op.call(grad_mean, grad_free_energy, grad_log_normalizer, grad_state, value, beta, delta, A, B, C, D, key_mask,
                 cu_seqlens, initial, strict, delayed, checkpoints);
}

RecurrentRead ssm_read(const at::Tensor& value, const OptionalTensor& beta, const Ssm& ssm,
                       const RecurrentReadOptions& options) {
  return read_in_directions(kOp, value, beta, options, [&](const Direction& d) -> RecurrentRead {
    auto [mean, free_energy, log_normalizer, state, checkpoints] =
        call_ssm_scan(d.turn(value), beta, d.turn(ssm.delta), ssm.A, d.turn(ssm.B), d.turn(ssm.C), ssm.D,
                      d.options.key_mask, d.options.cu_seqlens, d.options.initial, d.strict(), ssm.delayed);
    return {
        {std::move(mean), beta ? std::move(free_energy) : at::Tensor()}, std::move(log_normalizer), std::move(state)};
  });
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def(
      "ssm_read(Tensor value, Tensor? beta, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D, "
      "bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None, "
      "bool delayed=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state)",
      [](const at::Tensor& value, const OptionalTensor& beta, const at::Tensor& delta, const at::Tensor& A,
         const at::Tensor& B, const at::Tensor& C, const at::Tensor& D, bool causal, const OptionalTensor& key_mask,
         const OptionalTensor& cu_seqlens, const OptionalTensor& initial, bool delayed) {
        return tensors_of(ssm_read(value, beta, {delta, A, B, C, D, delayed}, {causal, key_mask, cu_seqlens, initial}));
      });
  m.def(
      "ssm_scan(Tensor value, Tensor? beta, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D, "
      "Tensor? key_mask=None, Tensor? cu_seqlens=None, Tensor? initial=None, bool strict=False, bool delayed=False) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer, Tensor state, Tensor checkpoints)");
  m.def(
      "ssm_scan_backward(Tensor? grad_mean, Tensor? grad_free_energy, Tensor? grad_log_normalizer, Tensor? grad_state, "
      "Tensor value, Tensor? beta, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D, Tensor? key_mask, "
      "Tensor? cu_seqlens, Tensor? initial, bool strict, bool delayed, Tensor checkpoints) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("ssm_scan", read_on_cpu);
  m.impl("ssm_scan_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("ssm_scan", read_shapes);
  m.impl("ssm_scan_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {
  m.impl("ssm_scan", announced<read_anywhere>);
  m.impl("ssm_scan_backward", announced<gradient_anywhere>);
}

}  // namespace fem
