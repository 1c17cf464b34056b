// The bfloat16 kernels of softmax_read around a matrix unit of plain loops, and the processor's own unit where it has
// one.
#include "support/kernel_test.h"
#include "support/matrix_unit.h"
#include "support/softmax_run.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

class SoftmaxReadOnMatrixUnit : public KernelTest {
  PlainMatrixUnit unit_;
};
FEM_ON_EVERY_ISA(SoftmaxReadOnMatrixUnit);

SoftmaxInputs inputs(const SoftmaxCase& c) { return cast(make_inputs(c), at::kBFloat16); }

at::Tensor seeds(const SoftmaxCase& c) {
  return at::randn({c.batch, c.queries, c.heads, c.value_width}).to(at::kBFloat16).to(at::kDouble);
}

std::vector<SoftmaxCase> cases() {
  std::vector<SoftmaxCase> all = softmax_cases();
  all.push_back({"wider_than_a_panel", 1, 300, 300, 1, 131, 70});
  all.push_back({"wide_mean_only", 1, 270, 270, 1, 66, 130, false, std::nullopt, true, {}, true});
  return all;
}

TEST_P(SoftmaxReadOnMatrixUnit, IsAsExactAsTheDefinitionInBfloat16) {
  for (const SoftmaxCase& c : cases()) {
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = inputs(c), exact = cast(in, at::kDouble);
    const at::Tensor g1 = seeds(c), g2 = seeds(c);
    expect_as_exact(run(fem::softmax_read, in, g1, g2), run(softmax_read_definition, in, g1, g2),
                    run(softmax_read_definition, exact, g1, g2), exact, g2);
  }
}

TEST_P(SoftmaxReadOnMatrixUnit, TheReadDoesNotDependOnThreadsAndGradientsRepeat) {
  for (const SoftmaxCase& c : cases()) {
    if (c.keys < 300) continue;  // one block of keys: never divided
    SCOPED_TRACE(c.name);
    const SoftmaxInputs in = inputs(c);
    const at::Tensor g = seeds(c);
    const auto with_threads = [&](int threads) {
      ScopedThreads scope(threads);
      return run(fem::softmax_read, in, g, g);
    };
    const SoftmaxResult one = with_threads(1), two = with_threads(2), again = with_threads(2);
    EXPECT_TRUE(at::equal(one.read.mean, two.read.mean));
    EXPECT_TRUE(!in.beta || at::equal(one.read.free_energy, two.read.free_energy));
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      EXPECT_TRUE(close(two.gradients[i], one.gradients[i], kBfloat16));
      EXPECT_TRUE(at::equal(again.gradients[i], two.gradients[i])) << "a second run differs";
    }
  }
}

TEST_P(SoftmaxReadOnMatrixUnit, QueriesThatSeeNothingReadZeroWithZeroGradients) {
  SoftmaxInputs in = inputs({"", 2, 120, 120, 2, 9, 5, false});
  in.options.key_mask = at::ones({2, 120}, at::kBool);
  in.options.key_mask->select(0, 1).zero_();
  const at::Tensor g = at::randn({2, 120, 2, 5});
  const SoftmaxResult result = run(fem::softmax_read, in, g, g);
  EXPECT_TRUE((result.read.mean.select(0, 1) == 0).all().item<bool>());
  EXPECT_TRUE((result.read.free_energy.select(0, 1) == 0).all().item<bool>());
  EXPECT_TRUE((result.read.log_normalizer.select(0, 1) == -INFINITY).all().item<bool>());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((result.gradients[i].select(0, 1) == 0).all().item<bool>());
  EXPECT_TRUE(result.gradients[3].isfinite().all().item<bool>());
}

TEST_P(SoftmaxReadOnMatrixUnit, WhatMaskedTokensHoldHasNoInfluenceEvenNaN) {
  SoftmaxInputs in = inputs({"", 2, 130, 130, 2, 9, 5, true, std::nullopt, true});
  const at::Tensor g = at::randn({2, 130, 2, 5});
  const SoftmaxResult expected = run(fem::softmax_read, in, g, g);
  const at::Tensor hidden = in.options.key_mask->logical_not().view({2, 130, 1, 1});
  in.key = in.key.detach().masked_fill(hidden, NAN).requires_grad_();
  in.value = in.value.detach().masked_fill(hidden, NAN).requires_grad_();
  const SoftmaxResult actual = run(fem::softmax_read, in, g, g);
  EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i]));
}

TEST_P(SoftmaxReadOnMatrixUnit, FutureTokensHaveNoInfluenceAndNoGradient) {
  const int64_t length = 530, now = 301;
  SoftmaxInputs in = inputs({"", 1, length, length, 2, 16, 8});
  at::Tensor g = at::randn({1, length, 2, 8});
  g.slice(1, now).zero_();
  const SoftmaxResult before = run(fem::softmax_read, in, g, g);
  for (const int i : {1, 2}) EXPECT_TRUE((before.gradients[i].slice(1, now) == 0).all().item<bool>());
  in.key = in.key.detach().clone();
  in.value = in.value.detach().clone();
  in.key.slice(1, now).normal_();
  in.value.slice(1, now).normal_();
  const fem::SoftmaxRead after = fem::softmax_read(in.query, in.key, in.value, in.beta, in.options);
  EXPECT_TRUE(at::equal(after.free_energy.slice(1, 0, now), before.read.free_energy.slice(1, 0, now)));
  EXPECT_FALSE(at::equal(after.free_energy.slice(1, now), before.read.free_energy.slice(1, now)));
}

TEST_P(SoftmaxReadOnMatrixUnit, StridedInputsGiveTheSame) {
  const SoftmaxInputs in = inputs({"", 2, 70, 70, 3, 17, 8});
  const at::Tensor g = at::randn({2, 70, 3, 8});
  const SoftmaxResult expected = run(fem::softmax_read, in, g, g);
  SoftmaxInputs strided = in;
  strided.query = in.query.transpose(1, 2).contiguous().transpose(1, 2);
  strided.key = at::stack({in.key, in.key}, -1).flatten(-2).slice(-1, 0, std::nullopt, 2);
  strided.value = at::cat({in.value, in.value}, 3).slice(3, 0, 8);
  const SoftmaxResult actual = run(fem::softmax_read, strided, g, g);
  EXPECT_TRUE(at::equal(actual.read.free_energy, expected.read.free_energy));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(actual.gradients[i], expected.gradients[i]));
}

// What the gradients of <g, mean> + <g, free energy> are sums of where every query sees every key, in absolute values.
std::vector<at::Tensor> gradient_terms(const SoftmaxInputs& in, const at::Tensor& g) {
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const double scale = 1 / std::sqrt(static_cast<double>(in.query.size(3)));
  const at::Tensor q = heads_first(in.query), k = heads_first(in.key), v = heads_first(in.value);
  const at::Tensor beta = in.beta->unsqueeze(1), seed = heads_first(g).abs();
  const at::Tensor p = (scale * at::matmul(q, k.mT())).softmax(-1), e = at::exp(beta * v);
  const at::Tensor z = at::matmul(p, e), dz = seed / (beta * z), de = e * at::matmul(p.mT(), dz);
  const at::Tensor dp = at::matmul(seed, v.abs().mT()) + at::matmul(dz, e.mT());
  const at::Tensor correction = seed * (at::matmul(p, v).abs() + 1 / beta);
  const at::Tensor ds = scale * p * (dp + correction.sum(-1, true));
  return {heads_first(at::matmul(ds, k.abs())), heads_first(at::matmul(ds.mT(), q.abs())),
          heads_first(at::matmul(p.mT(), seed) + beta * de),
          (v.abs() * de).sum({0, 2}) + (seed * z.log().abs() / beta.square()).sum({0, 2})};
}

TEST_P(SoftmaxReadOnMatrixUnit, ValuesUpToTheCapStayInRange) {
  // Every value sits at plus or minus the cap, and the high ones where the weights are smallest.
  const int64_t length = 260;
  SoftmaxInputs in = make_inputs({"", 1, length, length, 1, 4, 6, false});
  in.query = at::zeros_like(in.query);
  in.key = at::zeros_like(in.key);
  in.query.select(3, 0).fill_(2);
  in.key.select(3, 0).copy_(at::arange(length, at::kDouble).view({1, length, 1}) * -0.5);  // scores 0 ... -129.5
  in.beta = at::full({1, 6}, 2.0, at::kDouble);
  in.value = at::where(at::rand_like(in.value) > 0.1, -20.0, 20.0);
  in.value.slice(1, 0, length - 40).fill_(-20);
  const at::Tensor g = at::randn({1, length, 1, 6}).to(at::kBFloat16).to(at::kDouble);
  const SoftmaxInputs low = cast(in, at::kBFloat16), exact = cast(low, at::kDouble);
  const SoftmaxResult expected = run(softmax_read_definition, exact, g, g), actual = run(fem::softmax_read, low, g, g);
  EXPECT_TRUE(close(actual.read.free_energy, expected.read.free_energy, kBfloat16));
  const std::vector<at::Tensor> terms = gradient_terms(exact, g);
  for (size_t i = 0; i < 4; ++i) {
    // Weights below e^-119 are 0 even with the guard: twelve orders below the largest term all terms count alike.
    const at::Tensor sizes = at::maximum(terms[i], 0x1p-40 * terms[i].max());
    EXPECT_TRUE(close_beside_terms(actual.gradients[i], expected.gradients[i], sizes, kBfloat16Gradient)) << i;
  }
}

TEST_P(SoftmaxReadOnMatrixUnit, SmallGradientsOfHighValuesAreKept) {
  // dz = dF / (beta z) with z = e^40: with the whole guard taken off it would be denormal, and 0 to the unit.
  SoftmaxInputs in = inputs({"", 1, 90, 90, 1, 8, 4});
  in.value = at::full_like(in.value, 20.0).requires_grad_();
  in.beta = at::full_like(*in.beta, 2.0).requires_grad_();
  const at::Tensor g = at::randn({1, 90, 1, 4}).to(at::kBFloat16).to(at::kDouble) * 0x1p-26;
  const SoftmaxResult expected = run(softmax_read_definition, cast(in, at::kDouble), at::zeros_like(g), g);
  const SoftmaxResult actual = run(fem::softmax_read, in, at::zeros_like(g), g);
  EXPECT_TRUE(close(actual.gradients[2], expected.gradients[2], kBfloat16Gradient));
}

TEST(MatrixUnit, IsForTheWidestKernelsOnly) {
  const ScopedIsa generic(cpu::Isa::kGeneric);
  EXPECT_EQ(softmax_kernels::matrix_unit(), nullptr);
}

TEST(MatrixUnit, TheProcessorsOwnMultipliesAsPlainLoopsDo) {
  const softmax_kernels::MatrixUnit* unit = softmax_kernels::matrix_unit();
  if (!unit) GTEST_SKIP() << "this processor has no AMX or AVX512_BF16";
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{16, 64, 2}, {256, 64, 256}, {7, 16, 130}, {64, 48, 64}}) {
    const at::Tensor a = at::randn({m, k + 32}).to(at::kBFloat16), b = at::randn({k, 64}).to(at::kBFloat16);
    const at::Tensor start = at::randn({m, n + 16}), expected = start.clone(), actual = start.clone();
    for (const bool add : {false, true}) {
      PlainMatrixUnit::multiply(m, n, k, k + 32, 64, n + 16, add, a.data_ptr(), b.data_ptr(),
                                expected.data_ptr<float>());
      unit->multiply(m, n, k, k + 32, 64, n + 16, add, a.data_ptr(), b.data_ptr(), actual.data_ptr<float>());
      EXPECT_TRUE(close(actual, expected, kFloat32));
    }
  }
  unit->release();
  PlainMatrixUnit::release();
}

}  // namespace
}  // namespace fem::testing
