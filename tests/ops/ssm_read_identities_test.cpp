// What ssm_read's weights must be, in closed form or by a recurrence in float64 written out here.
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "fem/ops/ssm_read.h"
#include "support/kernel_test.h"
#include "support/ssm_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using SsmReadIdentities = KernelTest;
FEM_ON_EVERY_ISA(SsmReadIdentities);

// One state of rate A a channel, constant delta, no direct path: an exponential moving average.
SsmInputs moving_average(int64_t tokens, double delta, double A) {
  SsmInputs in = make_inputs({"", 1, tokens, 1, 3, 1});
  in.ssm.delta.fill_(delta);
  in.ssm.A.fill_(A);
  in.ssm.B.fill_(0.5);
  in.ssm.C.fill_(0.25);
  in.ssm.D.fill_(0);
  return in;
}

TEST_P(SsmReadIdentities, NormalisedWeightsSumToOne) {
  for (const char* name : {"T1000", "masked", "packed", "encoder", "encoder_packed_masked"}) {
    for (const SsmCase& c : ssm_cases()) {
      if (c.name != name) continue;
      SCOPED_TRACE(name);
      SsmInputs in = make_inputs(c);
      in.value.fill_(1);
      in = cast(in, at::kFloat);
      const RecurrentRead read = ssm_read(in.value, in.beta, in.ssm, in.options);
      // Masked tokens before any real one see nothing.
      const at::Tensor expected = (read.log_normalizer > -INFINITY).to(at::kFloat);
      EXPECT_GT(expected.mean().item<double>(), 0.9);
      EXPECT_TRUE(close(read.mean, expected, kFloat32));
      EXPECT_TRUE(close(read.free_energy, expected, kFloat32));
    }
  }
}

TEST_P(SsmReadIdentities, OneStateIsAnExponentialMovingAverage) {
  const int64_t tokens = 200;
  const double a = std::exp(0.5 * -0.125);
  const SsmInputs in = moving_average(tokens, 0.5, -0.125);
  const at::Tensor age = at::arange(tokens, at::kDouble).unsqueeze(1) - at::arange(tokens, at::kDouble);
  const at::Tensor weights = at::where(age >= 0, at::pow(a, age.clamp_min(0)), at::zeros({}, at::kDouble));
  const at::Tensor total = (1 - at::pow(a, at::arange(1, tokens + 1, at::kDouble))) / (1 - a);
  const auto average = [&](const at::Tensor& x) { return at::matmul(weights, x[0].select(1, 0)) / total.unsqueeze(1); };
  const SsmInputs low = cast(in, at::kFloat);
  const RecurrentRead read = ssm_read(low.value, low.beta, low.ssm, low.options);
  EXPECT_TRUE(close(read.mean[0].select(1, 0), average(in.value), kFloat32));
  const at::Tensor energy = average(at::exp(*in.beta * in.value)).log() / in.beta->select(0, 0);
  EXPECT_TRUE(close(read.free_energy[0].select(1, 0), energy, kFloat32));
  const at::Tensor normalizer = (total * (0.5 * 0.5 * 0.25)).log().unsqueeze(1).expand({tokens, 3});
  EXPECT_TRUE(close(read.log_normalizer[0].select(1, 0), normalizer, kFloat32));
}

TEST_P(SsmReadIdentities, StrongDecayKeepsTheLastTokensWeightsExact) {
  // The gradient of the last mean is the last row of weights; each is compared relative to itself.
  const int64_t tokens = 10000, last = 15;
  const SsmInputs in = cast(moving_average(tokens, 1, -5), at::kFloat);
  const at::Tensor mean = ssm_read(in.value, in.beta, in.ssm, in.options).mean;
  const at::Tensor weights = torch::autograd::grad({mean.select(1, tokens - 1).sum()}, {in.value})[0];
  const at::Tensor age = at::arange(last - 1, -1, -1, at::kDouble);
  const at::Tensor expected = (at::exp(-5 * age) * (1 - std::exp(-5.0))).view({last, 1, 1}).expand({last, 1, 3});
  EXPECT_TRUE(close(weights[0].slice(0, tokens - last) / expected, at::ones_like(expected), kFloat32));
  EXPECT_TRUE(weights.isfinite().all().item<bool>());
}

// The recurrence in float64, token by token, without ATen: mean, free energy, log-normaliser [T, V] of one head.
std::array<at::Tensor, 3> by_recurrence(const SsmInputs& in) {
  const auto numbers = [](const at::Tensor& x) {
    const at::Tensor flat = x.detach().to(at::kDouble).contiguous();
    return std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  };
  const auto value = numbers(in.value), beta = numbers(*in.beta), delta = numbers(in.ssm.delta), A = numbers(in.ssm.A),
             B = numbers(in.ssm.B), C = numbers(in.ssm.C), D = numbers(in.ssm.D);
  const int64_t tokens = in.value.size(1), width = in.value.size(3), rank = in.ssm.A.size(2);
  std::array<at::Tensor, 3> out;
  for (at::Tensor& x : out) x = at::empty({tokens, width}, at::kDouble);
  double* const to[] = {out[0].data_ptr<double>(), out[1].data_ptr<double>(), out[2].data_ptr<double>()};
  std::vector<double> h(width * rank * 3, 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < width; ++c) {
      const double v = value[t * width + c], step = delta[t * width + c];
      const double u[3] = {1, v, std::exp(beta[c] * v)};
      double sums[3] = {D[c] * u[0], D[c] * u[1], D[c] * u[2]};
      for (int64_t r = 0; r < rank; ++r) {
        const double decay = std::exp(step * A[c * rank + r]), gain = step * B[t * rank + r];
        for (int s = 0; s < 3; ++s) {
          double& state = h[(c * rank + r) * 3 + s];
          state = decay * state + gain * u[s];
          sums[s] += C[t * rank + r] * state;
        }
      }
      to[0][t * width + c] = sums[1] / sums[0];
      to[1][t * width + c] = std::log(sums[2] / sums[0]) / beta[c];
      to[2][t * width + c] = std::log(sums[0]);
    }
  }
  return out;
}

TEST_P(SsmReadIdentities, AHundredThousandTokensEqualARecurrenceInFloat64) {
  // delta A from -3 to -1e-7 a token: memories from one token to a hundred times the sequence. Equal steps are the hard
  // ones: a rounding that takes the same side every token adds up.
  const int64_t tokens = 100000, width = 6;
  for (const bool equal_steps : {false, true}) {
    SsmInputs in = make_inputs({"", 1, tokens, 1, width, 2});
    in.ssm.delta = in.ssm.delta * 0.1;
    if (equal_steps) {
      in.ssm.delta.fill_(0.01f);
      in.ssm.B.fill_(0.7f);
    }
    in.ssm.A = -at::tensor({30.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 3.0, 1e-5, 10.0, 0.3}, at::kDouble)
                    .view({1, width, 2});
    in = cast(in, at::kFloat);
    at::NoGradGuard no_grad;
    const RecurrentRead read = ssm_read(in.value, in.beta, in.ssm, in.options);
    const auto expected = by_recurrence(in);
    const at::Tensor actual[] = {read.mean, read.free_energy, read.log_normalizer};
    for (int i = 0; i < 3; ++i)
      for (int64_t c = 0; c < width; ++c)  // one by one: long averages are small beside short ones
        EXPECT_TRUE(close(actual[i][0].select(1, 0).select(1, c), expected[i].select(1, c), kFloat32)) << i << " " << c;
  }
}

}  // namespace
}  // namespace fem::testing
