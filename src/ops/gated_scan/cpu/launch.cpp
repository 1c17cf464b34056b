// From tensors to the gated_scan kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/gated_scan/cpu/kernels.h"
#include "ops/gated_scan/gated_scan.h"
#include "ops/kernel_tensors.h"

namespace fem {
namespace {

using namespace gated_scan_kernels;

// Contiguous tensors kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor decay_logit, gate_logit, weight, bias, initial, key_mask, restart;

  explicit KernelInputs(const GatedScanOp::Inputs& in)
      : decay_logit(in.decay_logit.contiguous()),
        gate_logit(in.gate_logit.contiguous()),
        weight(as_float(in.norm_weight)),
        bias(as_float(in.norm_bias)),
        initial(contiguous(in.initial)),
        key_mask(contiguous(in.key_mask)),
        restart(contiguous(in.restart)) {}

  void fill(Scan& a, const GatedScanOp::Inputs& in) const {
    a.bfloat16 = gate_logit.scalar_type() == at::kBFloat16;
    a.reverse = in.reverse;
    a.silu = in.silu;
    a.batch = gate_logit.size(0);
    a.tokens = gate_logit.size(1);
    a.channels = gate_logit.size(2);
    a.gate_eps = static_cast<float>(scan_gate_eps(in.silu));
    a.gate_floor = static_cast<float>(kScanNormFloor);
    a.norm_eps = static_cast<float>(kScanNormEps);
    a.decay_logit = decay_logit.const_data_ptr();
    a.gate_logit = gate_logit.const_data_ptr();
    a.initial = data_of<float>(initial);
    a.weight = data_of<float>(weight);
    a.bias = data_of<float>(bias);
    a.key_mask = data_of<bool>(key_mask);
    a.restart = data_of<bool>(restart);
  }
};

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

int64_t scan_items(const Scan& a) { return a.batch * ((a.channels + kChannels - 1) / kChannels); }
int64_t scan_grain(const Scan& a) { return std::max<int64_t>(1, kGrain / (a.tokens * kChannels)); }

}  // namespace

void GatedScanOp::kernel(const Inputs& in, Outputs& out) {
  if (in.u.numel() == 0) return;
  const KernelInputs inputs(in);
  const at::Tensor u = in.u.contiguous();
  Scan a{};
  inputs.fill(a, in);
  a.u = u.const_data_ptr();
  a.h = out.h.data_ptr<float>();
  a.units = out.units.data_ptr();
  at::parallel_for(0, scan_items(a), scan_grain(a),
                   [&, run = scan()](int64_t begin, int64_t end) { run(a, begin, end); });
  at::parallel_for(0, a.batch * a.tokens, std::max<int64_t>(1, kGrain / a.channels),
                   [&, run = rows()](int64_t begin, int64_t end) {
                     std::vector<float> scratch(scratch_floats()(a));
                     run(a, begin, end, scratch.data());
                   });
}

GatedScanOp::Inputs GatedScanOp::gradient_kernel(const BackwardOf<GatedScanOp>& b) {
  const at::Tensor h = b.out.h.contiguous();
  const int64_t tokens = h.size(0) * h.size(1), channels = h.size(2);
  Inputs d;
  if (h.numel() == 0) return d;
  const KernelInputs inputs(b.in);
  const auto like_logit = [&] { return at::empty(h.sizes(), inputs.decay_logit.options()); };
  d.u = like_logit(), d.decay_logit = like_logit(), d.gate_logit = like_logit();
  d.initial = like(b.in.initial);
  const at::Tensor grad =
      b.grads.units.defined() ? b.grads.units.to(d.u.scalar_type()).contiguous() : at::zeros(h.sizes(), d.u.options());
  ScanBackward a{};
  inputs.fill(a, b.in);
  a.h = h.data_ptr<float>();
  a.grad_units = grad.const_data_ptr();
  a.grad_u = d.u.data_ptr();
  a.grad_decay = d.decay_logit.data_ptr();
  a.grad_gate = d.gate_logit.data_ptr();
  a.grad_initial = output_of<float>(or_undefined(d.initial));

  // Each part sums the norm's gradients in memory of its own; the sums are added in order.
  const int64_t parts = std::clamp<int64_t>(tokens * channels / kGrain, 1, at::get_num_threads());
  const at::Tensor sums = at::zeros({parts, 2, channels}, h.options());
  at::parallel_for(0, parts, 1, [&, run = rows_backward()](int64_t first, int64_t last) {
    std::vector<float> scratch(scratch_floats()(a));
    for (int64_t part = first; part < last; ++part) {
      float* own = sums.data_ptr<float>() + part * 2 * channels;
      run(a, {own, own + channels}, part * tokens / parts, (part + 1) * tokens / parts, scratch.data());
    }
  });
  if (b.grads.h.defined()) d.u.add_(b.grads.h);
  at::parallel_for(0, scan_items(a), scan_grain(a),
                   [&, run = scan_backward()](int64_t begin, int64_t end) { run(a, begin, end); });
  const at::Tensor total = sums.sum(0).to(d.u.scalar_type());
  d.norm_weight = total[0].clone();
  if (b.in.norm_bias) d.norm_bias = total[1].clone();
  return d;
}

}  // namespace fem
