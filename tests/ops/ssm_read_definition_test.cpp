// ssm_read's definition, by a prior that is written out.
#include <torch/csrc/autograd/autograd.h>

#include "fem/ops/ssm_read.h"
#include "support/gradient_check.h"
#include "support/ssm_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

// p_t(i) materialised for one row of real tokens: C_t.B_i delta_i exp(A sum_{i < tau <= t} delta_tau), on both sides of
// t if not causal (from the right without delta_i, with delta_t), and D on the diagonal. [T, T, H, V], rows t.
// Delayed: the sum leaves out t, and the diagonal has D alone.
at::Tensor responses(const SsmInputs& in) {
  const at::Tensor delta = in.ssm.delta[0], A = in.ssm.A;
  const int64_t tokens = delta.size(0);
  const at::Tensor clock = delta.cumsum(0);
  const auto both = [](const at::Tensor& x, const at::Tensor& y) { return x.unsqueeze(1) - y.unsqueeze(0); };
  // time from i to t; from the right the clock has not yet counted t's own step
  const at::Tensor before = clock - delta, own = in.ssm.delayed ? before : clock;
  const at::Tensor left = both(own, clock), right = -both(in.ssm.delayed ? clock : before, before);
  const at::Tensor order = at::arange(tokens).unsqueeze(1) - at::arange(tokens);
  const auto weight = [&](const at::Tensor& elapsed, const at::Tensor& visible) {
    const at::Tensor decay = at::exp(elapsed.unsqueeze(-1) * A);  // [T, T, H, V, R]
    const at::Tensor products = in.ssm.C[0].unsqueeze(1) * in.ssm.B[0].unsqueeze(0);
    const at::Tensor w = (decay * products.unsqueeze(2).unsqueeze(2)).sum(-1) * delta.unsqueeze(0);
    return at::where(visible.unsqueeze(-1).unsqueeze(-1), w, at::zeros({}, at::kDouble));
  };
  at::Tensor all = weight(left.clamp_min(0), in.ssm.delayed ? order > 0 : order >= 0);
  if (!in.options.causal) all = all + weight(right.clamp_min(0), order < 0);
  return all + at::eye(tokens, at::kDouble).unsqueeze(-1).unsqueeze(-1) * in.ssm.D;
}

RecurrentRead materialised_read(const SsmInputs& in) {
  const at::Tensor s = responses(in), one = s.sum(1);
  const at::Tensor p = s / one.unsqueeze(1);
  RecurrentRead read;
  read.mean = (p * in.value).sum(1).unsqueeze(0);
  read.free_energy = (p * at::exp(*in.beta * in.value)).sum(1).log().unsqueeze(0) / *in.beta;
  read.log_normalizer = one.log().unsqueeze(0);
  return read;
}

TEST(SsmReadDefinition, EqualsTheReadOfTheMaterialisedPrior) {
  at::manual_seed(5);
  for (const auto& [causal, delayed] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
    SCOPED_TRACE(::testing::Message() << (causal ? "causal" : "encoder") << (delayed ? " delayed" : ""));
    SsmInputs in = cast(make_inputs({"", 1, 23, 2, 3, 4}), at::kDouble);
    in.options.causal = causal;
    in.ssm.delayed = delayed;
    const auto outputs = [](const RecurrentRead& r) -> std::vector<at::Tensor> {
      return {r.mean, r.free_energy, r.log_normalizer};
    };
    const auto actual = outputs(ssm_read(in.value, in.beta, in.ssm, in.options));
    const auto definition = outputs(ssm_read_definition(in.value, in.beta, in.ssm, in.options));
    const auto expected = outputs(materialised_read(in));
    std::vector<at::Tensor> seeds;
    for (const at::Tensor& x : expected) seeds.push_back(at::randn_like(x));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(close(actual[i], expected[i], kFloat64)) << i;
      EXPECT_TRUE(close(definition[i], expected[i], kFloat64)) << i;
    }
    const auto wrt = in.floating();
    const auto dexpected = torch::autograd::grad(expected, wrt, seeds);
    const auto dactual = torch::autograd::grad(actual, wrt, seeds);
    const auto ddefinition = torch::autograd::grad(definition, wrt, seeds);
    for (size_t i = 0; i < wrt.size(); ++i) {
      EXPECT_TRUE(close(dactual[i], dexpected[i], kFloat64)) << kSsmInputNames[i];
      EXPECT_TRUE(close(ddefinition[i], dexpected[i], kFloat64)) << kSsmInputNames[i];
    }
  }
}

TEST(SsmReadDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  for (const SsmCase& c : std::vector<SsmCase>{{"initial", 1, 3, 1, 2, 2, false, {}, true},
                                               {"masked", 2, 3, 1, 2, 1, true, {}, true},
                                               {"packed", 1, 4, 1, 1, 2, false, {0, 1, 1, 4}, true},
                                               {"encoder", 1, 3, 1, 2, 2, false, {}, false, false, false},
                                               {"delayed", 1, 3, 1, 2, 2, true, {}, true, false, true, false, true}}) {
    SCOPED_TRACE(c.name);
    const SsmInputs in = make_inputs(c);
    const auto function = [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
      SsmInputs at = in;
      at.value = x[0];
      at.ssm = {x[1], x[2], x[3], x[4], x[5], in.ssm.delayed};
      at.beta = x[6];
      if (in.options.initial) at.options.initial = x[7];
      const RecurrentRead r = ssm_read(at.value, at.beta, at.ssm, at.options);
      std::vector<at::Tensor> outputs{r.mean, r.log_normalizer, r.free_energy};
      if (r.state.defined()) outputs.push_back(r.state);
      return outputs;
    };
    EXPECT_TRUE(gradients_match(function, in.floating(), /*second_order=*/true));
  }
}

}  // namespace
}  // namespace fem::testing
