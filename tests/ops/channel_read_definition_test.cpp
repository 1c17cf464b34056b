// channel_read's definition, by a prior that is written out, and the shapes it promises.
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "support/channel_cases.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using namespace channel;

// p_t(i) of every channel as a tensor [B, T, T, H, V], then the read: nothing of the scan is in it.
RecurrentRead materialised(const ChannelInputs& in, bool causal) {
  const int64_t tokens = in.value.size(1);
  const at::Tensor zero = at::zeros_like(in.value);
  at::Tensor real = at::ones({in.value.size(0), tokens}, at::kBool);
  if (in.key_mask) real = *in.key_mask;
  const at::Tensor hidden = real.logical_not().unsqueeze(-1).unsqueeze(-1);
  const at::Tensor decay = in.log_decay ? in.log_decay->masked_fill(hidden, 0) : zero;
  const at::Tensor weight = in.log_weight ? in.log_weight->masked_fill(hidden, 0) : zero;
  const at::Tensor value = in.value.masked_fill(hidden, 0);
  // log of the weight of i at t: the decays of i+1 ... t; seen from the other side, of t ... i-1.
  const at::Tensor through = decay.cumsum(1), before = through - decay;
  const auto difference = [](const at::Tensor& x) { return x.unsqueeze(2) - x.unsqueeze(1); };
  const at::Tensor t = at::arange(tokens).view({1, tokens, 1, 1, 1}), i = t.transpose(1, 2);
  at::Tensor scores = at::where(i <= t, difference(through), -difference(before)) + weight.unsqueeze(1);
  at::Tensor seen = real.view({-1, 1, tokens, 1, 1});
  if (in.strict) seen = seen.logical_and(i < t);
  if (causal) seen = seen.logical_and(i <= t);
  if (in.cu_seqlens) {
    const at::Tensor sequence = at::searchsorted(*in.cu_seqlens, at::arange(tokens), false, /*right=*/true);
    seen = seen.logical_and((sequence.view({-1, 1}) == sequence.view({1, -1})).view({1, tokens, tokens, 1, 1}));
  }
  const at::Tensor none = seen.logical_not().all(2).expand_as(value);
  scores = scores.masked_fill(seen.logical_not(), -INFINITY);
  const at::Tensor p = scores.masked_fill(none.unsqueeze(2), 0).softmax(2).masked_fill(none.unsqueeze(2), 0);
  RecurrentRead read;
  read.mean = (p * value.unsqueeze(1)).sum(2);
  if (in.beta)
    read.free_energy = (p * (*in.beta * value.unsqueeze(1)).exp()).sum(2).masked_fill(none, 1).log() / *in.beta;
  read.log_normalizer = scores.masked_fill(none.unsqueeze(2), 0).logsumexp(2).masked_fill(none, -INFINITY);
  return read;
}

TEST(ChannelReadDefinition, EqualsTheMaterialisedPrior) {
  at::manual_seed(1);
  for (const Case& c : cases()) {
    if (c.initial || c.tokens > 130) continue;
    for (const bool causal : {true, false}) {
      if (c.strict && !causal) continue;
      SCOPED_TRACE(c.name + (causal ? "" : " from both sides"));
      const ChannelInputs in = cast(make_inputs(c), at::kDouble);
      const auto definition = [&](const ChannelInputs& x) {
        RecurrentRead read =
            x.strict ? by_definition(x)
                     : channel_read_definition(x.value, x.beta, x.log_weight, x.log_decay, options_of(x, causal));
        read.state = at::Tensor();
        return read;
      };
      const auto expected_read = [&](const ChannelInputs& x) { return materialised(x, causal); };
      const RecurrentRead grads = random_gradients(materialised(in, causal));
      expect_same(run(definition, in, grads), run(expected_read, in, grads), in, grads, at::kDouble);
    }
  }
}

TEST(ChannelReadDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(3);
  for (const Case& c : std::vector<Case>{{"aft", 1, 4, 1, 2, true, false},
                                         {"decay_initial", 2, 3, 1, 2, false, true, false, {}, true},
                                         {"both_masked", 1, 4, 2, 1, true, true, true, {}, true},
                                         {"both_strict", 1, 3, 1, 2, true, true, false, {}, true, true},
                                         {"packed", 1, 5, 1, 2, true, true, false, {0, 2, 5}}}) {
    SCOPED_TRACE(c.name);
    const ChannelInputs in = make_inputs(c);
    std::vector<at::Tensor> point{in.value, *in.beta};
    for (const OptionalTensor& x : {in.log_weight, in.log_decay, in.initial})
      if (x) point.push_back(*x);
    const auto outputs = [&](auto&& read) {
      return [&, read](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        ChannelInputs moved = in;
        size_t next = 2;
        moved.value = x[0];
        moved.beta = x[1];
        for (auto part : {&ChannelInputs::log_weight, &ChannelInputs::log_decay, &ChannelInputs::initial})
          if (in.*part) moved.*part = x[next++];
        const RecurrentRead out = read(moved);
        // A state stands for the sums in units of 1, whatever its scale.
        return {out.mean, out.free_energy, out.log_normalizer, out.state.slice(1, 1) * out.state.slice(1, 0, 1).exp()};
      };
    };
    EXPECT_TRUE(gradients_match(outputs(by_operator), point, /*second_order=*/true));
    EXPECT_TRUE(gradients_match(outputs(by_definition), point));
  }
}

TEST(ChannelReadMeta, ShapesAreThoseOfTheKernels) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      at::NoGradGuard no_grad;
      const ChannelInputs in = cast(make_inputs(c), dtype);
      const auto meta = [](const OptionalTensor& x) { return x ? OptionalTensor(x->to(at::kMeta)) : x; };
      const auto real = tensors_of(call<ChannelScanOp>(in));
      const auto shapes =
          tensors_of(call<ChannelScanOp>({*meta(in.value), meta(in.beta), meta(in.log_weight), meta(in.log_decay),
                                          meta(in.initial), meta(in.key_mask), meta(in.cu_seqlens), in.strict}));
      for (size_t i = 0; i < real.size(); ++i) {
        EXPECT_EQ(shapes[i].sizes(), real[i].sizes()) << i;
        EXPECT_EQ(shapes[i].scalar_type(), real[i].scalar_type()) << i;
      }
    }
  }
}

}  // namespace
}  // namespace fem::testing
