// From tensors to the gated_scan kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/gated_scan/cpu/kernels.h"
#include "ops/gated_scan/gated_scan.h"

namespace fem {
namespace {

using namespace gated_scan_kernels;

// Contiguous tensors kept alive beside the arguments that point into them.
struct Inputs {
  at::Tensor decay_logit, gate_logit, weight, bias, initial, absent, restart;

  Inputs(const at::Tensor& decay_logit, const at::Tensor& gate_logit, const at::Tensor& weight,
         const OptionalTensor& bias, const OptionalTensor& initial, const OptionalTensor& absent,
         const OptionalTensor& restart)
      : decay_logit(decay_logit.contiguous()),
        gate_logit(gate_logit.contiguous()),
        weight(weight.to(at::kFloat).contiguous()),
        bias(bias ? bias->to(at::kFloat).contiguous() : at::Tensor()),
        initial(of(initial)),
        absent(of(absent)),
        restart(of(restart)) {}

  void fill(Scan& a, bool reverse, bool silu) const {
    a.bfloat16 = gate_logit.scalar_type() == at::kBFloat16;
    a.reverse = reverse;
    a.silu = silu;
    a.batch = gate_logit.size(0);
    a.tokens = gate_logit.size(1);
    a.channels = gate_logit.size(2);
    a.gate_eps = static_cast<float>(scan_gate_eps(silu));
    a.gate_floor = static_cast<float>(kScanNormFloor);
    a.norm_eps = static_cast<float>(kScanNormEps);
    a.decay_logit = decay_logit.const_data_ptr();
    a.gate_logit = gate_logit.const_data_ptr();
    a.initial = initial.defined() ? initial.const_data_ptr<float>() : nullptr;
    a.weight = weight.const_data_ptr<float>();
    a.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
    a.absent = absent.defined() ? absent.const_data_ptr<bool>() : nullptr;
    a.restart = restart.defined() ? restart.const_data_ptr<bool>() : nullptr;
  }

 private:
  static at::Tensor of(const OptionalTensor& x) { return x ? x->contiguous() : at::Tensor(); }
};

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

int64_t scan_items(const Scan& a) { return a.batch * ((a.channels + kChannels - 1) / kChannels); }
int64_t scan_grain(const Scan& a) { return std::max<int64_t>(1, kGrain / (a.tokens * kChannels)); }

}  // namespace

Tensors2 gated_scan_cpu(const at::Tensor& u, const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                        const at::Tensor& norm_weight, const OptionalTensor& norm_bias, const OptionalTensor& initial,
                        const OptionalTensor& absent, const OptionalTensor& restart, bool reverse, bool silu) {
  const at::Tensor units = at::empty(u.sizes(), u.options());
  const at::Tensor h = at::empty(u.sizes(), u.options().dtype(at::kFloat));
  if (u.numel() == 0) return {units, h};
  const Inputs in(decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart);
  const at::Tensor added = u.contiguous();
  Scan a{};
  in.fill(a, reverse, silu);
  a.u = added.const_data_ptr();
  a.h = h.data_ptr<float>();
  a.units = units.data_ptr();
  at::parallel_for(0, scan_items(a), scan_grain(a),
                   [&, run = scan()](int64_t begin, int64_t end) { run(a, begin, end); });
  at::parallel_for(0, a.batch * a.tokens, std::max<int64_t>(1, kGrain / a.channels),
                   [&, run = rows()](int64_t begin, int64_t end) {
                     std::vector<float> scratch(scratch_floats()(a));
                     run(a, begin, end, scratch.data());
                   });
  return {units, h};
}

Tensors6 gated_scan_backward_cpu(const at::Tensor& grad_units, const OptionalTensor& grad_h,
                                 const at::Tensor& decay_logit, const at::Tensor& gate_logit,
                                 const at::Tensor& norm_weight, const OptionalTensor& norm_bias,
                                 const OptionalTensor& initial, const OptionalTensor& absent,
                                 const OptionalTensor& restart, bool reverse, bool silu, const at::Tensor& h) {
  const auto like_logit = [&] { return at::empty(h.sizes(), decay_logit.options()); };
  const at::Tensor du = like_logit(), ddecay = like_logit(), dgate = like_logit();
  const auto none = [&] { return at::empty({0}, decay_logit.options()); };
  const at::Tensor dinitial = initial ? at::zeros(initial->sizes(), h.options()) : none();
  const int64_t tokens = h.size(0) * h.size(1), channels = h.size(2);

  // Each part sums the norm's gradients in memory of its own; the sums are added in order.
  const int64_t parts = std::clamp<int64_t>(tokens * channels / kGrain, 1, at::get_num_threads());
  const at::Tensor sums = at::zeros({parts, 2, channels}, h.options());
  if (h.numel() > 0) {
    const Inputs in(decay_logit, gate_logit, norm_weight, norm_bias, initial, absent, restart);
    const at::Tensor grad = grad_units.to(decay_logit.scalar_type()).contiguous(), output = h.contiguous();
    ScanBackward a{};
    in.fill(a, reverse, silu);
    a.h = output.data_ptr<float>();
    a.grad_units = grad.const_data_ptr();
    a.grad_u = du.data_ptr();
    a.grad_decay = ddecay.data_ptr();
    a.grad_gate = dgate.data_ptr();
    a.grad_initial = initial ? dinitial.data_ptr<float>() : nullptr;
    at::parallel_for(0, parts, 1, [&, run = rows_backward()](int64_t first, int64_t last) {
      std::vector<float> scratch(scratch_floats()(a));
      for (int64_t part = first; part < last; ++part) {
        float* own = sums.data_ptr<float>() + part * 2 * channels;
        run(a, {own, own + channels}, part * tokens / parts, (part + 1) * tokens / parts, scratch.data());
      }
    });
    if (grad_h) du.add_(*grad_h);
    at::parallel_for(0, scan_items(a), scan_grain(a),
                     [&, run = scan_backward()](int64_t begin, int64_t end) { run(a, begin, end); });
  }
  const auto total = [&](int64_t which, const at::Tensor& like) {
    return sums.select(1, which).sum(0).to(like.scalar_type());
  };
  return {du, ddecay, dgate, total(0, norm_weight), norm_bias ? total(1, *norm_bias) : none(), dinitial};
}

}  // namespace fem
