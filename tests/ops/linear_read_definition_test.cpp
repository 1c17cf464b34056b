#include <torch/csrc/autograd/autograd.h>

#include "support/gradient_check.h"
#include "support/linear_cases.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

// "Materialise p_t(i), then read": scores [B, H, T, T] of every pair of tokens, the decay between them summed up.
Read materialised(const LinearInputs& in, bool causal) {
  const int64_t tokens = in.value.size(1);
  const at::Tensor t = at::arange(tokens).view({tokens, 1}), i = at::arange(tokens).view({1, tokens});
  at::Tensor visible = (causal ? i <= t : at::ones({tokens, tokens}, at::kBool)).view({1, 1, tokens, tokens});
  if (in.key_mask) visible = visible.logical_and(in.key_mask->view({-1, 1, 1, tokens}));
  if (in.cu_seqlens) {
    const at::Tensor sequence = at::searchsorted(*in.cu_seqlens, at::arange(tokens), false, /*right=*/true);
    visible = visible.logical_and(sequence.view({tokens, 1}) == sequence.view({1, tokens}));
  }
  at::Tensor scores = at::einsum("bthk,bihk->bhti", {in.query, in.key});
  if (in.log_decay) {
    at::Tensor g = in.log_decay->transpose(1, 2);
    if (in.key_mask) g = g.masked_fill(in.key_mask->logical_not().unsqueeze(1), 0);
    // From i to t the decays of i + 1 ... t; on the way back, in the reversed sequence, those of t ... i - 1.
    const at::Tensor sum = g.cumsum(-1), before = sum - g;
    const at::Tensor onward = sum.unsqueeze(-1) - sum.unsqueeze(-2);
    const at::Tensor back = before.unsqueeze(-2) - before.unsqueeze(-1);
    scores = scores * at::where(i <= t, onward, back).masked_fill(visible.logical_not(), 0).exp();
  }
  scores = scores.masked_fill(visible.logical_not(), 0);
  const at::Tensor total = scores.sum(-1, true), empty = total == 0;
  const at::Tensor p = scores / total.masked_fill(empty, 1);
  Read read;
  read.mean = at::einsum("bhti,bihv->bthv", {p, in.value});
  const at::Tensor z = at::einsum("bhti,bihv->bthv", {p, at::exp(*in.beta * in.value)});
  read.free_energy = z.masked_fill(empty.transpose(1, 2), 1).log() / *in.beta;
  return read;
}

TEST(LinearReadDefinition, EqualsTheMaterialisedPrior) {
  at::manual_seed(5);
  for (const LinearCase& c : std::vector<LinearCase>{
           {"gla", 2, 150, 2, 6, 4},
           {"linear", 2, 150, 2, 6, 4, false},
           {"masked", 2, 100, 2, 6, 4, true, true},
           {"packed", 1, 150, 2, 6, 4, true, true, false, false, false, {0, 70, 70, 71, 150}},
       }) {
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(c.name + (causal ? "" : ", encoder"));
      const LinearInputs in = cast(make_inputs(c), at::kDouble);
      std::vector<at::Tensor> wrt{in.query, in.key, in.value, *in.beta};
      if (in.log_decay) wrt.push_back(*in.log_decay);
      const at::Tensor g = at::randn(in.value.sizes(), at::kDouble), h = at::randn(in.value.sizes(), at::kDouble);
      const Read expected = materialised(in, causal);
      const auto expected_gradients = torch::autograd::grad({expected.mean, expected.free_energy}, wrt, {g, h});
      const auto compare = [&](const RecurrentRead& actual) {
        EXPECT_TRUE(close(actual.mean, expected.mean, kFloat64));
        EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat64));
        const auto gradients = torch::autograd::grad({actual.mean, actual.free_energy}, wrt, {g, h});
        for (size_t i = 0; i < wrt.size(); ++i) EXPECT_TRUE(close(gradients[i], expected_gradients[i], kFloat64)) << i;
      };
      compare(linear_read_definition(in.query, in.key, in.value, in.beta, in.log_decay, in.options(causal)));
      compare(linear_read(in.query, in.key, in.value, in.beta, in.log_decay, in.options(causal)));
    }
  }
}

TEST(LinearReadDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  for (const LinearCase& c : std::vector<LinearCase>{
           {"gla", 1, 4, 2, 2, 2, true, false, true},
           {"linear_masked", 2, 3, 1, 2, 2, false, true, true},
           {"strict", 1, 4, 1, 2, 2, true, false, true, true},
           {"packed", 1, 5, 1, 2, 1, true, false, true, false, false, {0, 2, 2, 5}},
       }) {
    SCOPED_TRACE(c.name);
    const LinearInputs in = make_inputs(c);
    std::vector<at::Tensor> point{in.query + 0.1, in.key + 0.1, in.value, *in.beta, *in.initial};
    if (c.decay) point.push_back(*in.log_decay);
    const auto with = [&](const std::vector<at::Tensor>& x) {
      LinearInputs y = in;
      y.query = x[0], y.key = x[1], y.value = x[2], y.beta = x[3], y.initial = x[4];
      if (c.decay) y.log_decay = x[5];
      return y;
    };
    const auto outputs = [](const RecurrentRead& read) -> std::vector<at::Tensor> {
      return {read.mean, read.free_energy, read.log_normalizer, read.state};
    };
    EXPECT_TRUE(gradients_match([&](const auto& x) { return outputs(by_kernel(with(x))); }, point, true));
    EXPECT_TRUE(gradients_match([&](const auto& x) { return outputs(by_definition(with(x))); }, point));
  }
}

TEST(LinearReadDefinition, MetaTensorsHaveTheShapesOfRealOnes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const LinearInputs in = cast(make_inputs({"", 2, 600, 2, 4, 3}), dtype);
    const auto shapes = [&](at::Device device) {
      const auto to = [&](const at::Tensor& x) { return x.detach().to(device); };
      const ScanReads out = call<LinearScanOp>(
          {to(in.query), to(in.key), to(in.value), to(*in.beta), to(*in.log_decay), {}, {}, {}, false});
      std::vector<std::pair<std::vector<int64_t>, at::ScalarType>> result;
      for (const at::Tensor& x : tensors_of(out)) result.push_back({x.sizes().vec(), x.scalar_type()});
      return result;
    };
    EXPECT_EQ(shapes(at::kMeta), shapes(at::kCPU));
  }
}

}  // namespace
}  // namespace fem::testing
