// in_context_recall and noisy_recall: pairs of a key and its value, and the values of keys seen before are to be named.
#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

class Recall final : public MadGenerator {
 public:
  // Keys are [0, half), values [half, clean), noise [clean, vocab_size).
  Recall(const MadDataOptions& o, int64_t noise_tokens, double noise)
      : half_((o.vocab_size - noise_tokens) / 2),
        clean_(o.vocab_size - noise_tokens),
        vocab_size_(o.vocab_size),
        pairs_(o.length / 2),
        noise_(noise) {
    FEM_CHECK(o.length >= 4 && o.length % 2 == 0, "mad: expected an even data.length of at least 4 for recall, got ",
              o.length);
    FEM_CHECK(clean_ >= 2 && clean_ % 2 == 0, "mad: expected an even data.vocab_size of at least ", noise_tokens + 2,
              " for recall", noise_tokens ? " with 16 tokens of noise" : "", ", got ", o.vocab_size);
  }

  int64_t tokens() const override { return 2 * pairs_ - 1; }

  MadExample draw(Draws& draws, bool training) const override {
    std::vector<int32_t> x, counted, value_of(half_, -1), seen;
    const auto emit = [&](int32_t token, int32_t target) {
      x.push_back(token);
      counted.push_back(target);
    };
    const auto pair = [&](int32_t key) {
      const bool is_new = value_of[key] < 0;
      if (is_new) {
        value_of[key] = draws.between(half_, clean_);
        seen.push_back(key);
      }
      emit(key, kMadIgnored);
      emit(value_of[key], is_new ? kMadIgnored : value_of[key]);
    };
    // One slot has a pair for sure, so that there is something to recall; it may be the last, which has one anyway.
    const int32_t kept = noise_ > 0 ? draws.below(pairs_) : 0;
    for (int64_t slot = 0; slot + 1 < pairs_; ++slot) {
      if (noise_ > 0 && slot != kept && draws.chance(noise_)) {
        for (int i = 0; i < 2; ++i) emit(draws.between(clean_, vocab_size_), kMadIgnored);
      } else {
        pair(draws.below(half_));
      }
    }
    pair(seen.empty() ? draws.below(half_) : seen[draws.below(static_cast<int64_t>(seen.size()))]);
    return shifted(x, counted, training);
  }

 private:
  int64_t half_, clean_, vocab_size_, pairs_;
  double noise_;
};

constexpr int64_t kNoiseTokens = 16;

}  // namespace

std::unique_ptr<MadGenerator> in_context_recall(const MadDataOptions& options) {
  return std::make_unique<Recall>(options, 0, 0.0);
}

std::unique_ptr<MadGenerator> noisy_recall(const MadDataOptions& options) {
  return std::make_unique<Recall>(options, kNoiseTokens, options.noise);
}

}  // namespace fem
