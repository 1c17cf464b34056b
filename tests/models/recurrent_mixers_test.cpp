// delta_net, gated_delta_net and mamba2 against their recurrences, token by token.
#include <cmath>

#include "models/one_mixer.h"
#include "support/error_text.h"

namespace fem::testing {
namespace {

at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight) {
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < x.size(1); ++t) {
    at::Tensor y = at::zeros_like(x.select(1, 0));
    for (int64_t back = 0; back < 4 && back <= t; ++back) y = y + x.select(1, t - back) * weight.select(1, 3 - back);
    rows.push_back(at::silu(y));
  }
  return at::stack(rows, 1);
}

// The formulas on the weights of a mixer.
class ByRecurrence {
 public:
  ByRecurrence(const OneMixer& mixer, const BackboneOptions& options) : mixer_(mixer), options_(options) {}

  at::Tensor operator()(const at::Tensor& x) const {
    return options_.block_mixer == BlockMixer::kMamba2 ? mamba2(x) : delta(x);
  }

 private:
  at::Tensor through(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, mixer_.weight(name + ".weight").t());
  }
  at::Tensor normed(const at::Tensor& x) const {
    return x / (x.square().mean(-1, true) + options_.norm_eps).sqrt() * mixer_.weight("norm.weight");
  }
  at::Tensor by_heads(const at::Tensor& x) const { return x.unflatten(-1, {options_.n_head, -1}); }
  at::Tensor step(const at::Tensor& x, const std::string& name) const {
    return at::softplus(through(x, name) + mixer_.weight(name + ".bias"));
  }
  at::Tensor decay(const at::Tensor& step) const { return at::exp(-mixer_.weight("A_log").exp() * step); }

  // Both delta rules: [B, H, K, V] from token to token.
  at::Tensor delta(const at::Tensor& x) const {
    const bool gated = options_.block_mixer == BlockMixer::kGatedDeltaNet;
    const int64_t values = mixer_.weight("output.weight").size(1),
                  keys = (mixer_.weight("input.weight").size(0) - values) / 2;
    const at::Tensor y = convolved(through(x, "input"), mixer_.weight("convolution.weight"));
    const auto unit = [](const at::Tensor& z) { return z / (z.square().sum(-1, true) + 1e-6).sqrt(); };
    const at::Tensor q = unit(by_heads(y.narrow(-1, 0, keys))), k = unit(by_heads(y.narrow(-1, keys, keys)));
    const at::Tensor v = by_heads(y.narrow(-1, 2 * keys, values));
    const at::Tensor b = at::sigmoid(through(x, "strength"));
    at::Tensor a = at::ones_like(b);
    if (gated) a = decay(step(x, "decay"));
    at::Tensor S = at::zeros({x.size(0), options_.n_head, q.size(-1), v.size(-1)}, x.options());
    std::vector<at::Tensor> reads;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const at::Tensor key = k.select(1, t).unsqueeze(-1), strength = b.select(1, t).unsqueeze(-1).unsqueeze(-1);
      const at::Tensor old = at::matmul(key.transpose(-2, -1), S);
      S = a.select(1, t).unsqueeze(-1).unsqueeze(-1) * (S - strength * at::matmul(key, old)) +
          strength * at::matmul(key, v.select(1, t).unsqueeze(-2));
      reads.push_back(at::matmul(q.select(1, t).unsqueeze(-2), S).squeeze(-2));
    }
    at::Tensor o = normed(at::stack(reads, 1)).flatten(2);
    if (gated) o = o * at::silu(through(x, "gate"));
    return through(o, "output");
  }

  at::Tensor mamba2(const at::Tensor& u) const {
    const int64_t inner = mixer_.weight("output.weight").size(1),
                  state = (mixer_.weight("input.weight").size(0) - inner) / 2;
    const at::Tensor y = convolved(through(u, "input"), mixer_.weight("convolution.weight"));
    const at::Tensor x = by_heads(y.narrow(-1, 0, inner)), B = y.narrow(-1, inner, state);
    const at::Tensor C = y.narrow(-1, inner + state, state);
    const at::Tensor dt = step(u, "step"), a = decay(dt);
    at::Tensor S = at::zeros({u.size(0), options_.n_head, state, x.size(-1)}, u.options());
    std::vector<at::Tensor> reads;
    for (int64_t t = 0; t < u.size(1); ++t) {
      const auto head = [&](const at::Tensor& z) { return z.select(1, t).unsqueeze(-1).unsqueeze(-1); };
      const at::Tensor key = B.select(1, t).unsqueeze(1).unsqueeze(-1),
                       query = C.select(1, t).unsqueeze(1).unsqueeze(1);
      S = head(a) * S + head(dt) * at::matmul(key, x.select(1, t).unsqueeze(-2));
      reads.push_back(at::matmul(query, S).squeeze(-2));
    }
    const at::Tensor read = (at::stack(reads, 1) + mixer_.weight("D").unsqueeze(-1) * x).flatten(2);
    const at::Tensor gated = read * at::silu(through(u, "gate"));
    return through(normed(gated), "output");
  }

  const OneMixer& mixer_;
  const BackboneOptions& options_;
};

class Recurrent : public ::testing::TestWithParam<BlockMixer> {
 protected:
  const BackboneOptions options = options_of(GetParam(), 12, 2);
  const OneMixer mixer{options, 0};
};
INSTANTIATE_TEST_SUITE_P(Mixer, Recurrent,
                         ::testing::Values(BlockMixer::kDeltaNet, BlockMixer::kGatedDeltaNet, BlockMixer::kMamba2),
                         [](const auto& info) { return spelled(info.param); });

at::Tensor random_rows(int64_t batch, int64_t length, int64_t width = 12) {
  at::manual_seed(3);
  return at::randn({batch, length, width}, at::kDouble);
}

TEST_P(Recurrent, IsItsRecurrenceWithItsGradients) {
  struct Sizes {
    int64_t width, heads, length;
  };
  for (const auto& [width, heads, length] :
       std::vector<Sizes>{{12, 2, 1}, {12, 2, 63}, {12, 2, 64}, {12, 2, 65}, {42, 3, 111}, {6, 1, 130}}) {
    SCOPED_TRACE(::testing::Message() << "D " << width << " H " << heads << " T " << length);
    const BackboneOptions sized = options_of(GetParam(), width, heads);
    const OneMixer one(sized, 0);
    one.expect(random_rows(2, length, width), ByRecurrence(one, sized));
  }
}

// Decays whose product over a chunk, or over a few tokens, is below the smallest number.
TEST(RecurrentDecays, NeitherOverflowNorVanish) {
  for (const BlockMixer kind : {BlockMixer::kGatedDeltaNet, BlockMixer::kMamba2})
    for (const double rate : {20.0, 300.0}) {
      const BackboneOptions options = options_of(kind, 12, 2);
      const OneMixer mixer(options, 0);
      {
        const at::NoGradGuard no_gradients;
        mixer.weight("A_log").fill_(std::log(rate));
      }
      mixer.expect(random_rows(2, 150), ByRecurrence(mixer, options));
    }
}

TEST_P(Recurrent, LowerPrecisionsAreNearFloat64) {
  const OneMixer one(options_of(GetParam(), 32, 2), 0);
  const at::Tensor x = random_rows(2, 111, 32);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto actual = one.rounded(x, dtype, dtype), exact = one.rounded(x, dtype, at::kDouble);
    EXPECT_EQ(actual[0].scalar_type(), dtype);
    EXPECT_TRUE(close(actual[0], exact[0], dtype == at::kFloat ? kFloat32Layer : kBfloat16Layer));
    for (size_t i = 1; i < exact.size(); ++i)
      EXPECT_TRUE(dtype == at::kFloat ? close(actual[i], exact[i], kFloat32LayerGradient)
                                      : close_on_average(actual[i], exact[i], kBfloat16Layer))
          << at::toString(dtype) << " " << i;
  }
}

TEST_P(Recurrent, PaddingAnywhereChangesNoRealToken) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = random_rows(3, 140), mask = at::rand({3, 140}) < 0.7, y = mixer(x, {.mask = mask});
  MixerState state;
  const auto part = [&](int64_t begin, int64_t end) {
    return mixer(x.slice(1, begin, end), {.mask = mask.slice(1, begin, end)}, &state);
  };
  const at::Tensor streamed = at::cat({part(0, 2), part(2, 70), part(70, 71), part(71, 140)}, 1);
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor real = mask[row].nonzero().squeeze(-1);
    const at::Tensor alone = mixer(x[row].index_select(0, real).unsqueeze(0))[0];
    EXPECT_TRUE(close(y[row].index_select(0, real), alone, kFloat64)) << row;
    EXPECT_TRUE(close(streamed[row].index_select(0, real), alone, kFloat64)) << row;
  }
}

TEST_P(Recurrent, PackedSequencesOfAnyLengthNeverMeet) {
  const std::vector<int64_t> borders{0, 5, 64, 64, 70, 131, 132, 210};
  const at::Tensor x = random_rows(1, 210).requires_grad_(), packed = mixer(x, {.cu_seqlens = at::tensor(borders)});
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    SCOPED_TRACE(i);
    const int64_t length = borders[i + 1] - borders[i];
    if (length == 0) continue;
    const at::Tensor alone = mixer(x.narrow(1, borders[i], length)), own = packed.narrow(1, borders[i], length);
    EXPECT_TRUE(close(own, alone, kFloat64));
    const at::Tensor direction = random_rows(1, length);
    const auto gradient = [&](const at::Tensor& y) {
      return torch::autograd::grad({y}, {x}, {direction}, /*retain_graph=*/true)[0];
    };
    EXPECT_TRUE(close(gradient(own), gradient(alone), kFloat64));  // zero, but for rounding, outside the sequence
    EXPECT_TRUE(gradient(own).slice(1, borders[i + 1]).eq(0).all().item<bool>());
  }
}

TEST_P(Recurrent, AnySplitIsTheWhole) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = random_rows(2, 200), whole = mixer(x);
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, 1, 1, 1, 196}, {63, 2, 64, 71}, {64, 64, 72}, {130, 0, 70}, {199, 1}}) {
    MixerState state;
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      parts.push_back(mixer(x.narrow(1, begin, length), {}, &state));
      begin += length;
    }
    ASSERT_EQ(begin, 200);
    EXPECT_TRUE(close(at::cat(parts, 1), whole, kFloat64)) << at::IntArrayRef(lengths);
    EXPECT_EQ(state.accumulators.at("matrix").dim(), 4);
    EXPECT_EQ(state.accumulators.at("convolution").size(1), 3);
  }
}

TEST_P(Recurrent, HasTheParametersOfAttentionWithinTwoPercent) {
  for (const int64_t width : {64, 128, 512})
    for (const int64_t heads : {2, 4, 8}) {
      const auto count = static_cast<double>(parameters_of(options_of(GetParam(), width, heads)));
      EXPECT_NEAR(count / static_cast<double>(4 * width * width), 1, 0.02) << "D " << width << " H " << heads;
    }
}

TEST_P(Recurrent, RefusesWhatItIsNot) {
  const std::string name = spelled(GetParam());
  const auto building = [&](const BackboneOptions& refused) { return [refused] { OneMixer(refused, 0); }; };
  BackboneOptions other = options;
  other.mixer.causal = false;
  EXPECT_TRUE(fails_with(name + ": expected mixer.causal = true, got false", building(other)));
  other = options;
  other.mixer.window = 4;
  EXPECT_TRUE(fails_with(name + " has no mixer option window; remove it", building(other)));
  EXPECT_TRUE(fails_with(name + ": expected n_embd to be a multiple of ", building(options_of(GetParam(), 15, 2))));
}

}  // namespace
}  // namespace fem::testing
