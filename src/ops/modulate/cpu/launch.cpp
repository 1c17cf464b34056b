// From tensors to the modulate kernels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/jobs.h"
#include "ops/modulate/cpu/kernels.h"
#include "ops/modulate/modulate.h"
#include "ops/strides.h"

namespace fem {
namespace {

using namespace modulate_kernels;

at::Tensor contiguous(const OptionalTensor& x) { return x ? x->contiguous() : at::Tensor(); }
const void* data_of(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
Rows rows_of(const at::Tensor& x) { return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

// How positions become angles, and the turn from one position to the next.
struct Turning {
  at::Tensor positions, frequency, step;
  Angles angles{};

  Turning(const OptionalTensor& given_positions, const OptionalTensor& given_frequency, bool halves) {
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
struct Inputs {
  at::Tensor x, hidden, weight, limit;
  Turning turning;

  Inputs(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
         const OptionalTensor& positions, const OptionalTensor& frequency, bool halves, const OptionalTensor& limit)
      : x(unit_stride(x)),
        hidden(contiguous(hidden)),
        weight(weight ? unit_stride(*weight) : at::Tensor()),
        limit(limit ? limit->to(at::kFloat).contiguous() : at::Tensor()),
        turning(positions, frequency, halves) {}

  void fill(Modulate& a, std::optional<double> floor, bool added) const {
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
    a.angles = turning.angles;
    a.added = added;
    a.positive = floor.has_value();
    a.floor = static_cast<float>(floor.value_or(0));
    a.limit = limit.defined() ? limit.const_data_ptr<float>() : nullptr;
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
  Packed view() const {
    return {panels.defined() ? panels.const_data_ptr<float>() : nullptr,
            transposed.defined() ? transposed.const_data_ptr<float>() : nullptr};
  }
};

int64_t blocks_of(const Modulate& a) { return (a.rows + kBlockRows - 1) / kBlockRows; }

}  // namespace

at::Tensor modulate_cpu(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                        const OptionalTensor& positions, const OptionalTensor& frequency, std::optional<double> floor,
                        const OptionalTensor& limit, bool added, bool halves) {
  const Inputs in(x, hidden, weight, positions, frequency, halves, limit);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (y.numel() == 0) return y;
  Modulate a{};
  in.fill(a, floor, added);
  a.y = y.data_ptr();
  const auto float_options = x.options().dtype(at::kFloat);
  const Sizes size = sizes()(a);
  const PackedWeight packed(a, size, /*backward=*/false, float_options);
  run_jobs(blocks_of(a), size.scratch,
           [&, run = forward()](int64_t block, float* scratch) { run(a, packed.view(), block, block + 1, scratch); });
  return y;
}

Tensors4 modulate_backward_cpu(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                               const OptionalTensor& weight, const OptionalTensor& positions,
                               const OptionalTensor& frequency, std::optional<double> floor,
                               const OptionalTensor& limit, bool added, bool halves) {
  const Inputs in(x, hidden, weight, positions, frequency, halves, limit);
  const at::Tensor dy = unit_stride(grad.to(x.scalar_type()));
  const auto none = [&] { return at::empty({0}, x.options()); };
  const at::Tensor dx = at::empty(x.sizes(), x.options());
  const at::Tensor dhidden = hidden ? at::empty(hidden->sizes(), x.options()) : none();
  if (dx.numel() == 0)
    return {dx, hidden ? dhidden.zero_() : dhidden, weight ? at::zeros_like(*weight) : none(),
            limit ? at::zeros_like(*limit) : none()};
  ModulateBackward a{};
  in.fill(a, floor, added);
  a.grad = rows_of(dy);
  a.grad_x = dx.data_ptr();
  a.grad_hidden = a.hidden ? dhidden.data_ptr() : nullptr;
  const auto float_options = x.options().dtype(at::kFloat);
  const Sizes size = sizes()(a);
  const PackedWeight packed(a, size, /*backward=*/true, float_options);

  // Each part sums the gradients of weight and limit in memory of its own; the sums are added in order.
  const int64_t columns = a.heads * a.width, blocks = blocks_of(a);
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), blocks);
  const at::Tensor weight_sums = at::zeros({parts, a.hidden ? columns : 0, size.hidden_row}, float_options);
  const at::Tensor limit_sums = at::zeros({parts, limit ? columns : 0}, float_options);
  at::parallel_for(0, parts, 1, [&, run = backward()](int64_t first, int64_t last) {
    const at::Tensor scratch = at::empty({size.scratch}, float_options);
    for (int64_t part = first; part < last; ++part)
      run(a, packed.view(),
          {weight_sums.data_ptr<float>() + part * columns * size.hidden_row,
           limit_sums.data_ptr<float>() + part * columns},
          part * blocks / parts, (part + 1) * blocks / parts, scratch.data_ptr<float>());
  });
  at::Tensor dweight = none(), dlimit = none();
  if (hidden) dweight = weight_sums.sum(0).slice(1, 0, weight->size(0)).t().to(weight->scalar_type()).contiguous();
  if (limit) dlimit = limit_sums.sum(0).view(limit->sizes()).to(limit->scalar_type());
  return {dx, dhidden, dweight, dlimit};
}

}  // namespace fem
