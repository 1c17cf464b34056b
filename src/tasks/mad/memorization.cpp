// memorization: which value belongs to which key is the same in all examples and stands in none; it must be learned.
#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

class Memorization final : public MadGenerator {
 public:
  // Keys are [0, half), values [half, ask); ask stands where a value is to be named.
  Memorization(const MadDataOptions& o, Draws& draws)
      : ask_(static_cast<int32_t>(o.vocab_size) - 1), pairs_(o.length / 2) {
    FEM_CHECK(o.vocab_size >= 3, "mad: expected data.vocab_size of at least 3 for memorization, got ", o.vocab_size);
    FEM_CHECK(o.length >= 2 && o.length % 2 == 0, "mad: expected an even data.length for memorization, got ", o.length);
    const int64_t half = ask_ / 2;
    value_of_ = draws.distinct(half, ask_, half);  // of [half, ask) one token may be left over
  }

  int64_t tokens() const override { return 2 * pairs_; }

  MadExample draw(Draws& draws, bool) const override {
    MadExample example;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const int32_t key = draws.below(static_cast<int64_t>(value_of_.size()));
      example.tokens.insert(example.tokens.end(), {key, ask_});
      example.targets.insert(example.targets.end(), {kMadIgnored, value_of_[key]});
    }
    return example;
  }

 private:
  int32_t ask_;
  int64_t pairs_;
  std::vector<int32_t> value_of_;
};

}  // namespace

std::unique_ptr<MadGenerator> memorization(const MadDataOptions& options, Draws& draws) {
  return std::make_unique<Memorization>(options, draws);
}

}  // namespace fem
