#include "models/recompute.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace fem {
namespace {

using Tensors = std::vector<at::Tensor>;

// One tensor in, two out and the other way round, as streams with a velocity are between blocks.
TEST(Recompute, GivesTheGradientsOfSeveralTensors) {
  at::manual_seed(0);
  const at::Tensor weight = at::randn({4}).requires_grad_();
  int calls = 0;
  const auto split = [&](const Tensors& in) {
    ++calls;
    return Tensors{in[0] * weight, in[0].sin()};
  };
  const auto join = [&](const Tensors& in) {
    ++calls;
    return Tensors{in[0] * in[1] + weight};
  };
  const auto gradients = [&](bool recompute, bool second_used) {
    const at::Tensor x = at::linspace(0.1, 1, 4).requires_grad_();
    weight.mutable_grad() = at::Tensor();
    const auto run = [&](const auto& f, const Tensors& in) { return recompute ? recomputed(f, in) : f(in); };
    const Tensors middle = run(split, {x});
    const at::Tensor y = second_used ? run(join, middle)[0] : middle[0];
    y.square().sum().backward();
    return std::pair{x.grad(), weight.grad().clone()};
  };
  for (const bool second_used : {true, false}) {
    const auto [x_kept, weight_kept] = gradients(false, second_used);
    calls = 0;
    const auto [x_again, weight_again] = gradients(true, second_used);
    EXPECT_EQ(calls, second_used ? 4 : 2);
    EXPECT_TRUE(x_again.equal(x_kept));
    EXPECT_TRUE(weight_again.equal(weight_kept));
  }
}

}  // namespace
}  // namespace fem
