// From tensors to the newton_read kernels: views, memory and the division of work among threads.
#include <ATen/ATen.h>

#include <algorithm>

#include "ops/jobs.h"
#include "ops/kernel_tensors.h"
#include "ops/newton_read/cpu/kernels.h"
#include "ops/newton_read/newton_read.h"
#include "ops/softmax_read/visibility.h"

namespace fem {
namespace {

using namespace newton_kernels;

constexpr int64_t kFewQueries = 4;  // up to here packing the keys would be most of the work
// Backward sums over the queries of a head; a long head is divided by its length alone, so that no bit depends on the
// number of threads.
constexpr int64_t kPartBlocks = 32, kMostParts = 8;

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor query, key, value, alpha, key_mask, packed;
  Intervals visible;

  explicit KernelInputs(const NewtonReadOp::Inputs& in)
      : query(unit_stride(in.query)),
        key(unit_stride(in.key)),
        value(unit_stride(in.value)),
        alpha(as_float(in.alpha)),
        key_mask(contiguous(in.key_mask)),
        visible(visible_intervals(query.size(1), key.size(1), in.causal, {}, in.cu_seqlens)) {}

  void fill(Arguments& a, const NewtonReadOp::Inputs& in) const {
    a.bfloat16 = query.scalar_type() == at::kBFloat16;
    a.of_values = in.of_values;
    a.batch = query.size(0);
    a.heads = query.size(2);
    a.queries = query.size(1);
    a.keys = key.size(1);
    a.key_width = query.size(3);
    a.value_width = value.size(3);
    a.scale = static_cast<float>(in.attention().scale_of_scores());
    a.rho = static_cast<float>(in.rho);
    a.query = rows_of(query);
    a.key = rows_of(key);
    a.value = rows_of(value);
    a.alpha = data_of<float>(alpha);
    a.key_begin = visible.begin.data();
    a.key_end = visible.end.data();
    a.key_mask = data_of<bool>(key_mask);
  }

  void pack(Arguments& a) {
    const int64_t heads = a.batch * a.heads;
    packed = at::empty({heads, head_floats()(a)}, at::kFloat);
    a.packed = packed.data_ptr<float>();
    run_jobs(heads, pack_floats()(a), [&, run = pack_heads()](int64_t head, float* memory) { run(a, head, memory); });
  }
};

}  // namespace

void NewtonReadOp::kernel(const Inputs& in, Outputs& out) {
  KernelInputs inputs(in);
  Forward a{};
  inputs.fill(a, in);
  a.read = out.read.data_ptr();
  a.mean = out.mean.data_ptr<float>();
  a.log_normalizer = out.log_normalizer.data_ptr<float>();
  const int64_t heads = a.batch * a.heads, blocks = (a.queries + kQueries - 1) / kQueries;
  if (heads == 0 || blocks == 0) return;
  if (a.queries <= kFewQueries)
    return run_jobs(heads, step_floats()(a), [&, run = step()](int64_t head, float* memory) { run(a, head, memory); });
  inputs.pack(a);
  // Of a causal read the last queries see most keys: they come first.
  run_jobs(heads * blocks, forward_floats()(a),
           [&, run = forward()](int64_t job, float* memory) { run(a, job % heads, blocks - 1 - job / heads, memory); });
}

NewtonReadOp::Inputs NewtonReadOp::gradient_kernel(const BackwardOf<NewtonReadOp>& b) {
  KernelInputs inputs(b.in);
  Backward a{};
  inputs.fill(a, b.in);
  const at::Tensor grad = unit_stride(b.grads.read.to(inputs.query.scalar_type())), mean = b.out.mean.contiguous(),
                   normalizer = b.out.log_normalizer.contiguous();
  a.grad_read = rows_of(grad);
  a.mean = data_of<float>(mean);
  a.log_normalizer = data_of<float>(normalizer);
  Inputs d{like(b.in.query), like(b.in.key), like(b.in.value), {}, false, 0, {}, false, {}, {}};
  a.grad_query = d.query.data_ptr();
  a.grad_key = d.key.data_ptr();
  a.grad_value = d.value.data_ptr();
  const int64_t heads = a.batch * a.heads, blocks = (a.queries + kQueries - 1) / kQueries;
  const int64_t parts = std::clamp<int64_t>(blocks / kPartBlocks, 1, kMostParts);
  inputs.pack(a);
  const int64_t floats = sums_floats()(a);
  const at::Tensor sums = at::zeros({heads, parts, floats}, at::kFloat),
                   dalpha = at::zeros({a.batch, a.heads}, at::kFloat);
  const auto sums_of = [&, first = sums.data_ptr<float>()](int64_t head, int64_t part) {
    return first + (head * parts + part) * floats;
  };
  // Of a causal read the last part sees most and comes first.
  run_jobs(heads * parts, backward_floats()(a), [&, run = backward()](int64_t job, float* memory) {
    const int64_t head = job % heads, part = parts - 1 - job / heads;
    run(a, head, blocks * part / parts, blocks * (part + 1) / parts, sums_of(head, part), memory);
  });
  run_jobs(heads, 0, [&, run = write_sums(), to = dalpha.data_ptr<float>()](int64_t head, float*) {
    to[head] = run(a, head, sums_of(head, 0), parts);
  });
  d.alpha = dalpha.sum(0);
  return d;
}

}  // namespace fem
