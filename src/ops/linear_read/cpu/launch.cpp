// From tensors to the linear_read kernels: views and memory. ops/scan_work.h divides the work.
#include <ATen/ATen.h>

#include "ops/exponents.h"
#include "ops/kernel_tensors.h"
#include "ops/linear_read/cpu/kernels.h"
#include "ops/linear_read/linear_read.h"
#include "ops/scan_work.h"

namespace fem {
namespace {

using namespace linear_kernels;

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor query, key, value, beta, log_decay, key_mask, initial, checkpoints;
  int64_t state_floats;
  ScanWork work;

  KernelInputs(const LinearScanOp::Inputs& in, const at::Tensor& checkpoints)
      : query(unit_stride(in.query)),
        key(unit_stride(in.key)),
        value(unit_stride(in.value)),
        beta(as_float(in.beta)),
        log_decay(or_undefined(in.log_decay)),
        key_mask(contiguous(in.key_mask)),
        initial(contiguous(in.initial)),
        checkpoints(checkpoints.contiguous()),
        state_floats(in.value.size(2) * in.key.size(3) * in.columns().expect_int()),
        work(sequences_of(in.value.size(0), in.value.size(1), in.cu_seqlens, LinearScanOp::kCalled),
             {.groups = in.value.size(2),
              .token_cost = in.key.size(3) * in.columns().expect_int(),
              .start_cost = 8,
              .unit = kLinearCheckpointTokens,
              .keeps_first = false,
              .least_units = 1,
              .least_parts = 2}) {}

  void fill(Arguments& a, bool strict) const {
    a.bfloat16 = value.scalar_type() == at::kBFloat16;
    a.strict = strict;
    a.heads = value.size(2);
    a.tokens = value.size(1);
    a.key_width = key.size(3);
    a.value_width = value.size(3);
    a.query = rows_of(query);
    a.key = rows_of(key);
    a.value = rows_of(value);
    a.log_decay = rows_of(log_decay);
    a.beta = data_of<float>(beta);
    a.key_mask = data_of<bool>(key_mask);
    a.checkpoints = output_of<float>(checkpoints);
    a.group_tokens = kLinearCheckpointTokens;
  }
};

// A whole sequence of a few tokens.
bool is_short(const Segment& s, const Arguments& a) {
  return s.first && s.last && s.end - s.begin <= step_tokens()() && a.value_width <= step_width()();
}

}  // namespace

void LinearScanOp::kernel(const Inputs& in, Outputs& out) {
  const KernelInputs inputs(in, out.checkpoints);
  out.checkpoints.zero_();  // room that no sequence needs must not differ from call to call
  if (out.state.numel() == 0) return;
  Forward a{};
  inputs.fill(a, in.strict);
  a.mean = out.mean.data_ptr();
  a.free_energy = in.beta ? out.free_energy.data_ptr<float>() : nullptr;
  a.log_normalizer = out.log_normalizer.data_ptr<float>();

  const ScanWork& work = inputs.work;
  const ScanStates states = work.states(inputs.state_floats, inputs.initial, inputs.checkpoints, out.state);
  work.run_ahead(
      states, 0, forward_scratch()(a),
      [&](const Segment& segment, Groups heads, const float* before, float* after, float*, float* scratch) {
        advance()(a, segment, heads, before, after, scratch);
      },
      [&](const Segment& segment, Groups heads, const float* before, const float*, float* after) {
        join()(a, segment, heads, before, after);
      });
  const at::Tensor largest =
      work.largest(forward_scratch()(a), [&](const Share& share, const Segment& segment, float* scratch) {
        const float* before = states.entering(share.segment);
        float* after = states.result(share.segment);
        return is_short(segment, a) ? step()(a, segment, share.groups, before, after)
                                    : forward()(a, segment, share.groups, before, after, scratch);
      });
  check_exponents(largest, kCalled);
}

LinearScanOp::Inputs LinearScanOp::gradient_kernel(const BackwardOf<LinearScanOp>& b) {
  const Inputs& in = b.in;
  const KernelInputs inputs(in, b.out.checkpoints);
  const at::Tensor dmean = unit_stride(in_dtype(b.grads.mean, in.value.scalar_type()));
  const at::Tensor dfree = in.beta ? unit_stride(in_dtype(b.grads.free_energy, at::kFloat)) : at::Tensor();
  const at::Tensor dlog = in_dtype(b.grads.log_normalizer, at::kFloat);
  const at::Tensor dstate = as_float(if_defined(b.grads.state)), mean = unit_stride(b.out.mean);
  const at::Tensor free_energy = in.beta ? unit_stride(b.out.free_energy) : at::Tensor();
  const at::Tensor dquery = like(in.query), dkey = like(in.key), dvalue = like(in.value);
  const at::Tensor dlog_decay = like(inputs.log_decay), dinitial = like(inputs.initial);

  Backward a{};
  inputs.fill(a, in.strict);
  a.mean = rows_of(mean);
  a.free_energy = rows_of(free_energy);
  a.log_normalizer = rows_of(b.out.log_normalizer);
  a.grad_mean = rows_of(dmean);
  a.grad_free_energy = rows_of(dfree);
  a.grad_log_normalizer = rows_of(dlog);
  a.grad_query = dquery.data_ptr();
  a.grad_key = dkey.data_ptr();
  a.grad_value = dvalue.data_ptr();
  a.grad_log_decay = output_of(dlog_decay);

  const ScanWork& work = inputs.work;
  const ScanStates states = work.states(inputs.state_floats, inputs.initial, inputs.checkpoints);
  const ScanStates gradients = work.gradients(inputs.state_floats, dstate, dinitial);
  const at::Tensor dbeta = at::zeros({work.parts(), a.heads, in.beta ? a.value_width : 0}, at::kDouble);
  work.run_ahead(
      gradients, 0, backward_scratch()(a),
      [&](const Segment& segment, Groups heads, const float* after, float* before, float*, float* scratch) {
        retreat()(a, segment, heads, after, before, scratch);
      },
      [&](const Segment& segment, Groups heads, const float* after, const float*, float* before) {
        join()(a, segment, heads, after, before);
      });
  work.run(backward_scratch()(a), [&](const Share& share, const Segment& segment, float* scratch) {
    backward()(a, segment, share.groups, states.entering(share.segment), gradients.entering(share.segment),
               gradients.result(share.segment), dbeta.data_ptr<double>() + share.part * dbeta.stride(0), scratch);
  });
  return {dquery, dkey, dvalue, dbeta.sum(0), if_defined(dlog_decay), if_defined(dinitial), {}, {}, false};
}

}  // namespace fem
