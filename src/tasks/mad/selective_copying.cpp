// selective_copying: tokens stand scattered among blanks and are to be named in their order at the end.
#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

class SelectiveCopying final : public MadGenerator {
 public:
  explicit SelectiveCopying(const MadDataOptions& o)
      : copy_(static_cast<int32_t>(o.vocab_size) - 1), blank_(copy_ - 1), copied_(o.copied), length_(o.length) {
    FEM_CHECK(blank_ >= 1, "mad: expected data.vocab_size of at least 3 for selective_copying, got ", o.vocab_size);
    FEM_CHECK(length_ > 2 * copied_, "mad: expected data.length of more than twice data.copied, ", copied_,
              ", for selective_copying, got ", length_);
  }

  int64_t tokens() const override { return length_; }

  MadExample draw(Draws& draws, bool) const override {
    std::vector<int32_t> content(copied_), blanks_before(copied_, 0);
    for (int32_t& token : content) token = draws.below(blank_);
    for (int64_t i = 0; i < length_ - 2 * copied_ - 1; ++i) ++blanks_before[draws.below(copied_)];
    MadExample example;
    for (int64_t i = 0; i < copied_; ++i) {
      example.tokens.insert(example.tokens.end(), blanks_before[i], blank_);
      example.tokens.push_back(content[i]);
    }
    example.tokens.push_back(copy_);
    example.tokens.insert(example.tokens.end(), copied_, blank_);
    example.targets.assign(length_ - copied_, kMadIgnored);
    example.targets.insert(example.targets.end(), content.begin(), content.end());
    return example;
  }

 private:
  int32_t copy_, blank_;
  int64_t copied_, length_;
};

}  // namespace

std::unique_ptr<MadGenerator> selective_copying(const MadDataOptions& options) {
  return std::make_unique<SelectiveCopying>(options);
}

}  // namespace fem
