// linear_read against what it stands for: the recurrence over a hundred thousand tokens, and the weights themselves.
#include "fem/ops/linear_read.h"
#include "support/kernel_test.h"
#include "support/linear_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using LinearRecurrence = KernelTest;
FEM_ON_EVERY_ISA(LinearRecurrence);

// The recurrence itself, token by token in float64, for one head: mean, free energy and log-normaliser of every token.
RecurrentRead recurrence(const LinearInputs& in) {
  const int64_t tokens = in.value.size(1), keys = in.key.size(3), values = in.value.size(3);
  const auto exact = [](const at::Tensor& x) { return x.detach().to(at::kDouble).contiguous(); };
  const at::Tensor q = exact(in.query), k = exact(in.key), v = exact(in.value), b = exact(*in.beta);
  const at::Tensor g = in.log_decay ? exact(*in.log_decay) : at::zeros({1, tokens, 1}, at::kDouble);
  RecurrentRead read;
  read.mean = at::zeros_like(v), read.free_energy = at::zeros_like(v);
  read.log_normalizer = at::zeros_like(g);
  read.state = at::zeros({1, 1, keys, 2 * values + 1}, at::kDouble);
  const double *query = q.data_ptr<double>(), *key = k.data_ptr<double>(), *value = v.data_ptr<double>();
  const double *beta = b.data_ptr<double>(), *decay = g.data_ptr<double>();
  double* state = read.state.data_ptr<double>();
  std::vector<double> mixed(2 * values + 1), sums(2 * values + 1);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < values; ++j) {
      mixed[j] = value[t * values + j];
      mixed[values + j] = std::exp(beta[j] * mixed[j]);
    }
    mixed[2 * values] = 1;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t i = 0; i < keys; ++i)
      for (int64_t j = 0; j <= 2 * values; ++j) {
        double& s = state[i * (2 * values + 1) + j];
        s = std::exp(decay[t]) * s + key[t * keys + i] * mixed[j];
        sums[j] += query[t * keys + i] * s;
      }
    for (int64_t j = 0; j < values; ++j) {
      read.mean.data_ptr<double>()[t * values + j] = sums[j] / sums[2 * values];
      read.free_energy.data_ptr<double>()[t * values + j] = std::log(sums[values + j] / sums[2 * values]) / beta[j];
    }
    read.log_normalizer.data_ptr<double>()[t] = std::log(sums[2 * values]);
  }
  return read;
}

void expect_recurrence(const LinearInputs& in) {
  const RecurrentRead actual = by_kernel(in), expected = recurrence(in);
  EXPECT_TRUE(close(actual.mean, expected.mean, kFloat32));
  EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat32));
  EXPECT_TRUE(close(actual.log_normalizer, expected.log_normalizer, kFloat32));
  EXPECT_TRUE(close(actual.state, expected.state, kFloat32));
}

TEST_P(LinearRecurrence, AHundredThousandTokensEqualTheRecurrence) {
  at::NoGradGuard no_grad;
  LinearInputs in = cast(make_inputs({"", 1, 100000, 1, 6, 5, false}), at::kFloat);
  expect_recurrence(in);
  in.log_decay = at::zeros({1, 100000, 1});
  for (const double decay : {-1e-6, -1e-3, -0.3, -5.0}) {
    SCOPED_TRACE(decay);
    in.log_decay->fill_(decay);
    expect_recurrence(in);
  }
  in.log_decay->uniform_(-2e-4, 0);
  expect_recurrence(in);
  // Constant terms: roundings of the growing sums all go the same way.
  in.log_decay.reset();
  in.key.fill_(0.7), in.query.fill_(1.1), in.value.fill_(1.3);
  expect_recurrence(in);
}

TEST_P(LinearRecurrence, StrongDecayKeepsTheLastTokensWeightsExact) {
  // p_T(T - d) = e^{-5 d} q.k_{T-d} / Z, read out through one-hot values; envelopes would lose them after forty tokens.
  at::NoGradGuard no_grad;
  const int64_t tokens = 10000, last = 8;
  LinearInputs in = cast(make_inputs({"", 1, tokens, 1, 16, last}), at::kFloat);
  in.log_decay->fill_(-5);
  in.value.zero_();
  for (int64_t d = 0; d < last; ++d) in.value[0][tokens - 1 - d][0][d] = 1;
  const at::Tensor weights = by_kernel(in).mean[0][tokens - 1][0].to(at::kDouble);
  const at::Tensor q = in.query[0][tokens - 1][0].to(at::kDouble), k = in.key[0].squeeze(1).to(at::kDouble);
  const at::Tensor scores = at::mv(k, q) * at::exp(-5 * at::arange(tokens - 1, -1, -1, at::kDouble));
  const at::Tensor expected = (scores / scores.sum()).flip(0).slice(0, 0, last);
  for (int64_t d = 0; d < last; ++d) EXPECT_TRUE(close(weights[d], expected[d], kFloat32)) << "distance " << d;
}

TEST_P(LinearRecurrence, TheEncoderWithoutDecayReadsAllTokens) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const LinearInputs in = cast(make_inputs({"", 2, 200, 2, 12, 10, false, true}), dtype);
    const RecurrentRead actual =
        fem::linear_read(in.query, in.key, in.value, in.beta, std::nullopt, in.options(/*causal=*/false));
    const LinearInputs exact = cast(in, at::kDouble);
    const at::Tensor scores =
        at::einsum("bthk,bihk->bhti", {exact.query, exact.key}) * in.key_mask->to(at::kDouble).view({2, 1, 1, 200});
    const at::Tensor p = scores / scores.sum(-1, true);
    EXPECT_TRUE(close(actual.mean, at::einsum("bhti,bihv->bthv", {p, exact.value}), forward_tolerance(dtype)));
    const at::Tensor z = at::einsum("bhti,bihv->bthv", {p, at::exp(*exact.beta * exact.value)});
    EXPECT_TRUE(close(actual.free_energy, z.log() / *exact.beta, forward_tolerance(dtype)));
    EXPECT_FALSE(actual.state.defined());
  }
}

}  // namespace
}  // namespace fem::testing
