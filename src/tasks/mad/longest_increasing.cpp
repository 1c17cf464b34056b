// longest_increasing: random numbers, at each of which the length of the longest increasing subsequence so far is to be
// named. None of MAD's: the task of an earlier version of "Transformers as Intrinsic Optimizers", which names it and no
// more.
#include <algorithm>

#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

class LongestIncreasing final : public MadGenerator {
 public:
  explicit LongestIncreasing(const MadDataOptions& o) : numbers_(o.vocab_size), length_(o.length) {
    FEM_CHECK(numbers_ >= 2, "mad: expected data.vocab_size of at least 2 for longest_increasing, got ", numbers_);
  }

  int64_t tokens() const override { return length_; }

  // A strictly increasing subsequence is no longer than there are numbers: length n is token n - 1.
  MadExample draw(Draws& draws, bool) const override {
    MadExample example;
    std::vector<int32_t> smallest_end;  // of the increasing subsequences of length 1, 2, ...
    for (int64_t i = 0; i < length_; ++i) {
      const int32_t number = draws.below(numbers_);
      const auto longer = std::lower_bound(smallest_end.begin(), smallest_end.end(), number);
      longer == smallest_end.end() ? smallest_end.push_back(number) : void(*longer = number);
      example.tokens.push_back(number);
      example.targets.push_back(static_cast<int32_t>(smallest_end.size()) - 1);
    }
    return example;
  }

 private:
  int64_t numbers_, length_;
};

}  // namespace

std::unique_ptr<MadGenerator> longest_increasing(const MadDataOptions& options) {
  return std::make_unique<LongestIncreasing>(options);
}

}  // namespace fem
