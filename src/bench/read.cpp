#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/benchmarks.h"
#include "fem/ops/softmax_read.h"

namespace fem::bench {
namespace {

constexpr double kForwardTarget = 0.75, kBackwardTarget = 0.65, kMemoryTarget = 1.3;
constexpr double kBeta = 1.95;  // where the layer's beta starts

using torch::autograd::variable_list;

// What a projection leaves: [B, T, H, width], a view of [B, T, H * width].
at::Tensor projected(const Shape& s, int64_t width, bool requires_grad) {
  return at::randn({s.batch, s.length, s.heads * width})
      .view({s.batch, s.length, s.heads, width})
      .set_requires_grad(requires_grad);
}

// Both sides of one shape; each call of forward() and backward() is what is timed.
class Ours {
 public:
  Ours(const Shape& s, bool grad)
      : inputs_{projected(s, s.dim / s.heads, grad), projected(s, s.dim / s.heads, grad),
                projected(s, s.dim / s.heads / 2, grad),
                at::full({s.heads, s.dim / s.heads / 2}, kBeta).set_requires_grad(grad)} {}

  variable_list forward() const {
    const SoftmaxRead read = softmax_read(inputs_[0], inputs_[1], inputs_[2], inputs_[3]);
    return {read.mean, read.free_energy};
  }
  const variable_list& inputs() const { return inputs_; }

 private:
  variable_list inputs_;
};

class Opponent {
 public:
  Opponent(const Shape& s, bool grad)
      : inputs_{projected(s, s.dim / s.heads, grad), projected(s, s.dim / s.heads, grad),
                projected(s, s.dim / s.heads, grad)} {}

  variable_list forward() const {
    const at::Tensor out = at::scaled_dot_product_attention(inputs_[0].transpose(1, 2), inputs_[1].transpose(1, 2),
                                                            inputs_[2].transpose(1, 2), {}, 0.0, /*is_causal=*/true);
    return {out.transpose(1, 2)};
  }
  const variable_list& inputs() const { return inputs_; }

 private:
  variable_list inputs_;
};

template <typename Side>
Work forward_of(const Shape& shape) {
  return [side = Side(shape, false)] {
    const at::NoGradGuard no_grad;
    side.forward();
  };
}

variable_list random_like(const variable_list& tensors) {
  variable_list random;
  for (const at::Tensor& t : tensors) random.push_back(at::randn_like(t));
  return random;
}

// The graph is built beforehand and kept, so that only the backward is timed.
template <typename Side>
Work backward_of(const Shape& shape) {
  const Side side(shape, true);
  const variable_list outputs = side.forward();
  return [side, outputs, gradients = random_like(outputs)] {
    torch::autograd::grad(outputs, side.inputs(), gradients, /*retain_graph=*/true);
  };
}

template <typename Side>
Work both_of(const Shape& shape) {
  const Side side(shape, true);
  return [side, gradients = random_like(side.forward())] {
    torch::autograd::grad(side.forward(), side.inputs(), gradients);
  };
}

}  // namespace

std::vector<Case> bench_read(const Settings& settings) {
  Recorder recorder("read", "torch sdpa", settings, 2);
  for (const Shape& s : settings.shapes) {
    recorder.time(s.name + " forward", {forward_of<Ours>(s), forward_of<Opponent>(s)}, kForwardTarget);
    recorder.time(s.name + " backward", {backward_of<Ours>(s), backward_of<Opponent>(s)}, kBackwardTarget);
    recorder.memory(s.name + " memory", {both_of<Ours>(s), both_of<Opponent>(s)}, kMemoryTarget);
  }
  return recorder.cases();
}

}  // namespace fem::bench
