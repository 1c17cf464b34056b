// From tensors to the channel_read kernels: views and memory. ops/scan_work.h divides the work.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "ops/channel_read/channel_read.h"
#include "ops/channel_read/cpu/kernels.h"
#include "ops/exponents.h"
#include "ops/kernel_tensors.h"
#include "ops/scan_work.h"

namespace fem {
namespace {

using namespace channel_kernels;

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
class KernelInputs {
 public:
  KernelInputs(const ChannelScanOp::Inputs& in, const at::Tensor& checkpoints)
      : initial(contiguous(in.initial)),
        checkpoints(checkpoints.contiguous()),
        heads_(in.value.size(2)),
        width_(in.value.size(3)),
        beta_(as_float(in.beta)),
        key_mask_(contiguous(in.key_mask)) {}

  const at::Tensor initial, checkpoints;

  // The tensor [B, T, H, V] as rows.
  Rows add(const at::Tensor& x) {
    if (!x.defined()) return {};
    const at::Tensor& kept = kept_.emplace_back(unit_stride(x));
    flat_ &= kept.stride(2) == width_ || heads_ == 1;
    return rows_of(kept);
  }

  // To be called after every add: only then it is known whether all tensors have the channels of all heads in a row.
  ScanWork fill(Arguments& a, const ChannelScanOp::Inputs& in) const {
    a.bfloat16 = in.value.scalar_type() == at::kBFloat16;
    a.strict = in.strict;
    a.with_weights = in.log_weight.has_value();
    a.with_decays = in.log_decay.has_value();
    a.tokens = in.value.size(1);
    a.heads = flat_ ? 1 : heads_;
    a.width = flat_ ? heads_ * width_ : width_;
    a.beta = data_of<float>(beta_);
    a.key_mask = data_of<bool>(key_mask_);
    a.checkpoints = output_of<float>(checkpoints);
    return {sequences_of(in.value.size(0), a.tokens, in.cu_seqlens, ChannelScanOp::kCalled),
            {.groups = a.groups(),
             .token_cost = kChannels,
             .start_cost = 1,
             .unit = kChunk,
             .keeps_first = true,
             .least_units = 4,
             .least_parts = 2}};
  }

 private:
  int64_t heads_, width_;
  at::Tensor beta_, key_mask_;
  std::vector<at::Tensor> kept_;
  bool flat_ = true;
};

int64_t state_floats(const Arguments& a) { return (1 + a.streams()) * a.channels(); }

// after += e^log_decay before, sums in units of e^scale.
void join_states(const Arguments& a, Groups groups, const float* before, const float* log_decay, float* after) {
  const int64_t channels = a.channels();
  for (int64_t c = a.first_channel(groups.begin); c < a.first_channel(groups.end); ++c) {
    const double decayed = before[c] + static_cast<double>(log_decay[c]) + log_decay[channels + c], own = after[c];
    // The units of the sums: rounded before they are measured in it, so that nothing of its rounding is left in them.
    const auto scale = static_cast<float>(std::max(decayed, own));
    const auto share = [&](double of) { return of == -INFINITY ? 0 : std::exp(of - scale); };
    after[c] = scale;
    for (int64_t i = c + channels; i < state_floats(a); i += channels)
      after[i] = static_cast<float>(share(decayed) * before[i] + share(own) * after[i]);
  }
}

void join_gradients(const Arguments& a, Groups groups, const float* after, const float* factor, float* before) {
  for (int64_t i = 1; i <= a.streams(); ++i)
    for (int64_t c = a.first_channel(groups.begin); c < a.first_channel(groups.end); ++c)
      before[i * a.channels() + c] += factor[c] * after[i * a.channels() + c];
}

}  // namespace

void ChannelScanOp::kernel(const Inputs& in, Outputs& out) {
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  KernelInputs inputs(in, out.checkpoints);
  Forward a{};
  a.value = inputs.add(in.value);
  a.log_weight = inputs.add(or_undefined(in.log_weight));
  a.log_decay = inputs.add(or_undefined(in.log_decay));
  a.mean = out.mean.data_ptr();
  a.free_energy = out.free_energy.data_ptr<float>();
  a.log_normalizer = out.log_normalizer.data_ptr<float>();

  const ScanWork work = inputs.fill(a, in);
  const ScanStates states = work.states(state_floats(a), inputs.initial, inputs.checkpoints, out.state);
  work.run_ahead(
      states, 2 * a.channels(), 0,
      [&](const Segment& segment, Groups groups, const float* before, float* after, float* log_decay, float*) {
        advance()(a, segment, groups, before, after, log_decay);
      },
      [&](const Segment&, Groups groups, const float* before, const float* log_decay, float* after) {
        join_states(a, groups, before, log_decay, after);
      });
  const at::Tensor largest = work.largest(a.groups() * kChannels * kStateFloats,
                                          [&](const Share& share, const Segment& segment, float* scratch) {
                                            return forward()(a, segment, share.groups, states.entering(share.segment),
                                                             states.result(share.segment), scratch);
                                          });
  if (in.beta) check_exponents(largest, kCalled);
}

ChannelScanOp::Inputs ChannelScanOp::gradient_kernel(const BackwardOf<ChannelScanOp>& b) {
  const Inputs& in = b.in;
  KernelInputs inputs(in, b.out.checkpoints);
  Inputs d;
  d.value = like(in.value), d.log_weight = like(in.log_weight), d.log_decay = like(in.log_decay);
  d.initial = like(in.initial);

  Backward a{};
  a.value = inputs.add(in.value);
  a.log_weight = inputs.add(or_undefined(in.log_weight));
  a.log_decay = inputs.add(or_undefined(in.log_decay));
  a.grad_mean = inputs.add(in_dtype(b.grads.mean, in.value.scalar_type()));
  a.grad_free_energy = inputs.add(in.beta ? in_dtype(b.grads.free_energy, at::kFloat) : at::Tensor());
  a.grad_log_normalizer = inputs.add(in_dtype(b.grads.log_normalizer, at::kFloat));
  a.grad_value = output_of(d.value);
  a.grad_log_weight = output_of(or_undefined(d.log_weight));
  a.grad_log_decay = output_of(or_undefined(d.log_decay));

  const ScanWork work = inputs.fill(a, in);
  const ScanStates states = work.states(state_floats(a), inputs.initial, inputs.checkpoints);
  const ScanStates gradients =
      work.gradients(state_floats(a), as_float(if_defined(b.grads.state)), or_undefined(d.initial));
  work.run_ahead(
      gradients, a.channels(), 0,
      [&](const Segment& segment, Groups groups, const float* after, float* before, float* factor, float*) {
        retreat()(a, segment, groups, after, before, factor);
      },
      [&](const Segment&, Groups groups, const float* after, const float* factor, float* before) {
        join_gradients(a, groups, after, factor, before);
      });
  const auto segments = static_cast<int64_t>(work.segments().size());
  const at::Tensor dbeta = at::empty({segments, in.beta ? a.channels() : 0}, at::kFloat);
  work.run(a.groups() * kChannels * kAdjointFloats, [&](const Share& share, const Segment& segment, float* scratch) {
    const int64_t i = share.segment;
    backward()(a, segment, share.groups, states.entering(i), gradients.entering(i), gradients.result(i),
               dbeta.data_ptr<float>() + i * dbeta.stride(0), scratch);
  });
  if (in.beta) d.beta = dbeta.sum(0).view({in.value.size(2), in.value.size(3)});
  return d;
}

}  // namespace fem
