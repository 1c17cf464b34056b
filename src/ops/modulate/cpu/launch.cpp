// From tensors to the modulate kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/jobs.h"
#include "ops/kernel_tensors.h"
#include "ops/modulate/cpu/kernels.h"
#include "ops/modulate/modulate.h"

namespace fem {
namespace {

using namespace modulate_kernels;

// How positions become angles, and the step from one position to the next.
struct Rotating {
  at::Tensor positions, frequency, step;
  Angles angles{};

  Rotating(const OptionalTensor& given_positions, const OptionalTensor& given_frequency, bool halves) {
    if (!given_positions) return;
    positions = given_positions->to(at::kLong).contiguous();
    frequency = given_frequency->contiguous();
    const int64_t width = 2 * frequency.size(0);
    step = at::empty({2, width}, frequency.options());
    angles.frequency = frequency.const_data_ptr<double>();
    angles.halves = halves;
    angles.position = positions.const_data_ptr<int64_t>();
    angles.batch = positions.dim() == 2 ? positions.size(1) : 0;
    angles.step_cosine = step.const_data_ptr<double>();
    angles.step_sine = angles.step_cosine + width;
    angles_at()(angles, width, 1, step.data_ptr<double>(), step.data_ptr<double>() + width);
  }
};

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor x, hidden, weight, limit;
  Rotating rotating;

  explicit KernelInputs(const ModulateOp::Inputs& in)
      : x(unit_stride(in.x)),
        hidden(contiguous(in.hidden)),
        weight(unit_stride(or_undefined(in.weight))),
        limit(as_float(in.limit)),
        rotating(in.positions, in.frequency, in.halves) {}

  void fill(Modulate& a, const ModulateOp::Inputs& in) const {
    a.bfloat16 = x.scalar_type() == at::kBFloat16;
    a.rows = x.size(0) * x.size(1);
    a.tokens = x.size(1);
    a.heads = x.size(2);
    a.width = x.size(3);
    a.hidden_width = hidden.defined() ? hidden.size(2) : 0;
    a.x = rows_of(x);
    a.hidden = a.hidden_width ? data_of(hidden) : nullptr;
    a.weight = data_of(weight);
    a.weight_row = weight.defined() ? weight.stride(0) : 0;
    a.angles = rotating.angles;
    a.added = in.added;
    a.positive = in.floor.has_value();
    a.floor = static_cast<float>(in.floor.value_or(0));
    a.limit = data_of<float>(limit);
  }
};

// The packed weight, shared by all threads.
struct PackedWeight {
  at::Tensor panels, transposed;

  PackedWeight(const Modulate& a, const Sizes& size, bool backward, const at::TensorOptions& options) {
    if (!a.hidden || (!backward && a.rows <= kFewRows)) return;
    panels = at::empty({size.panels}, options);
    if (backward) transposed = at::empty({size.transposed_panels}, options);
    pack_weight()(a, panels.data_ptr<float>(), backward ? transposed.data_ptr<float>() : nullptr);
  }
  Packed view() const { return {data_of<float>(panels), data_of<float>(transposed)}; }
};

int64_t blocks_of(const Modulate& a) { return (a.rows + kBlockRows - 1) / kBlockRows; }

}  // namespace

void ModulateOp::kernel(const Inputs& in, Outputs& out) {
  if (out.y.numel() == 0) return;
  const KernelInputs inputs(in);
  Modulate a{};
  inputs.fill(a, in);
  a.y = out.y.data_ptr();
  const Sizes size = sizes()(a);
  const PackedWeight packed(a, size, /*backward=*/false, at::kFloat);
  run_jobs(blocks_of(a), size.scratch,
           [&, run = forward()](int64_t block, float* scratch) { run(a, packed.view(), block, block + 1, scratch); });
}

ModulateOp::Inputs ModulateOp::gradient_kernel(const BackwardOf<ModulateOp>& b) {
  const at::Tensor& x = b.in.x;
  Inputs d;
  d.x = like(x);
  if (x.numel() == 0) return d;
  const KernelInputs inputs(b.in);
  const at::Tensor dy = unit_stride(b.grads.y.to(x.scalar_type()));
  ModulateBackward a{};
  inputs.fill(a, b.in);
  if (a.hidden) d.hidden = at::empty(inputs.hidden.sizes(), x.options());
  a.grad = rows_of(dy);
  a.grad_x = d.x.data_ptr();
  a.grad_hidden = a.hidden ? d.hidden->data_ptr() : nullptr;
  const Sizes size = sizes()(a);
  const PackedWeight packed(a, size, /*backward=*/true, at::kFloat);

  // Each part sums the gradients of weight and limit in memory of its own; the sums are added in order.
  const int64_t columns = a.heads * a.width, blocks = blocks_of(a);
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), blocks);
  const at::Tensor weight_sums = at::zeros({parts, a.hidden ? columns : 0, size.hidden_row}, at::kFloat);
  const at::Tensor limit_sums = at::zeros({parts, a.limit ? columns : 0}, at::kFloat);
  at::parallel_for(0, parts, 1, [&, run = backward()](int64_t first, int64_t last) {
    const at::Tensor scratch = at::empty({size.scratch}, at::kFloat);
    for (int64_t part = first; part < last; ++part)
      run(a, packed.view(),
          {weight_sums.data_ptr<float>() + part * columns * size.hidden_row,
           limit_sums.data_ptr<float>() + part * columns},
          part * blocks / parts, (part + 1) * blocks / parts, scratch.data_ptr<float>());
  });
  if (a.hidden) d.weight = weight_sums.sum(0).slice(1, 0, a.hidden_width).t().to(x.scalar_type());
  if (a.limit) d.limit = limit_sums.sum(0).view({a.heads, a.width}).to(x.scalar_type());
  return d;
}

}  // namespace fem
