#include "fem/ops/gated_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using GatedRead = KernelTest;
FEM_ON_EVERY_ISA(GatedRead);

// Which of the gates are on.
struct Gates {
  bool inner, outer;
};

std::vector<at::Tensor> random_inputs(at::IntArrayRef shape) {
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(at::randn(shape).to(at::kDouble) * 3);
  return inputs;
}

template <typename Function>
std::vector<at::Tensor> run(Function&& function, const std::vector<at::Tensor>& inputs, at::ScalarType dtype,
                            Gates gates, const at::Tensor& g) {
  std::vector<at::Tensor> x;
  for (const at::Tensor& input : inputs) x.push_back(input.to(dtype).clone().requires_grad_());
  const at::Tensor out =
      function(Read{x[0], gates.inner ? x[1] : at::Tensor()}, gates.inner ? std::optional(x[2]) : std::nullopt,
               gates.outer ? std::optional(x[3]) : std::nullopt, 1e-6);
  std::vector<at::Tensor> wrt{x[0]};
  if (gates.inner) wrt.insert(wrt.end(), {x[1], x[2]});
  if (gates.outer) wrt.push_back(x[3]);
  auto results = torch::autograd::grad({out}, wrt, {g.to(dtype)});
  results.insert(results.begin(), out);
  return results;
}

TEST_P(GatedRead, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble})
    for (const Gates gates : {Gates{true, true}, Gates{true, false}, Gates{false, true}})
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{2, 63, 3, 7}, {1, 111, 2, 32}, {1, 1, 1, 1}, {2, 5, 2, 100}}) {
        SCOPED_TRACE(::testing::Message() << at::toString(dtype) << shape << gates.inner << gates.outer);
        auto inputs = random_inputs(shape);
        for (at::Tensor& x : inputs) x = x.to(dtype).to(at::kDouble);
        const at::Tensor g = at::randn(shape).to(dtype).to(at::kDouble);
        const auto expected = run(gated_read_definition, inputs, at::kDouble, gates, g);
        const auto actual = run(gated_read, inputs, dtype, gates, g);
        EXPECT_TRUE(close(actual[0], expected[0], forward_tolerance(dtype)));
        for (size_t i = 1; i < actual.size(); ++i) {
          // The gate of a head of one channel is normalised to 1.
          const bool constant = gates.outer && i + 1 == actual.size() && shape.back() == 1;
          EXPECT_TRUE(constant ? vanishes(actual[i], gradient_tolerance(dtype), 1)
                               : close(actual[i], expected[i], gradient_tolerance(dtype)))
              << i;
        }
      }
}

TEST_P(GatedRead, ExtremeLogitsStayFiniteAndExact) {
  auto inputs = random_inputs({1, 20, 2, 9});
  inputs[2] *= 100;
  inputs[3] = at::linspace(-200, 60, 20 * 2 * 9, at::kDouble).view({1, 20, 2, 9}).to(at::kFloat).to(at::kDouble);
  const at::Tensor g = at::randn({1, 20, 2, 9}).to(at::kDouble);
  const auto expected = run(gated_read_definition, inputs, at::kDouble, {true, true}, g);
  const auto actual = run(gated_read, inputs, at::kFloat, {true, true}, g);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], kFloat32Gradient)) << i;
}

TEST_P(GatedRead, StridedAndEmptyInputsWork) {
  const auto inputs = random_inputs({2, 9, 3, 8});
  const auto strided = [&](int i) { return inputs[i].to(at::kFloat).transpose(1, 2).contiguous().transpose(1, 2); };
  const auto plain = [&](int i) { return inputs[i].to(at::kFloat); };
  EXPECT_TRUE(at::equal(gated_read({strided(0), strided(1)}, strided(2), strided(3)),
                        gated_read({plain(0), plain(1)}, plain(2), plain(3))));
  const at::Tensor none = at::empty({0, 9, 3, 8});
  EXPECT_EQ(gated_read({none, none}, none, none).sizes(), none.sizes());
}

TEST(GatedReadDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(6);
  const auto both = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    return {gated_read({x[0], x[1]}, x[2], x[3])};
  };
  EXPECT_TRUE(gradients_match(both, random_inputs({1, 2, 2, 4}), true));
}

TEST(GatedReadErrors, AreSentences) {
  const at::Tensor x = at::randn({2, 5, 3, 4});
  const auto expect = [](auto&& call, const char* text) { EXPECT_TRUE(fails_with(text, call)); };
  expect([&] { gated_read({x[0], x[0]}, x[0], x[0]); }, "gated_read: expected mean of shape [B, T, H, V]");
  expect([&] { gated_read({x, {}}, x, x); },
         "free_energy and temperature_logit belong together, got only temperature_logit");
  expect([&] { gated_read({x, x}, x, x.slice(3, 1)); },
         "gated_read: expected gate_logit of shape [2, 5, 3, 4] to match mean [2, 5, 3, 4], got [2, 5, 3, 3]");
}

}  // namespace
}  // namespace fem::testing
