// compression: random tokens, all to be named again from the hidden state of the last.
#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

class Compression final : public MadGenerator {
 public:
  explicit Compression(const MadDataOptions& o) : end_(static_cast<int32_t>(o.vocab_size) - 1), length_(o.length) {
    FEM_CHECK(end_ >= 1, "mad: expected data.vocab_size of at least 2 for compression, got ", o.vocab_size);
  }

  int64_t tokens() const override { return length_; }

  MadExample draw(Draws& draws, bool) const override {
    MadExample example;
    for (int64_t i = 0; i + 1 < length_; ++i) example.tokens.push_back(draws.below(end_));
    example.tokens.push_back(end_);
    example.targets = example.tokens;
    return example;
  }

 private:
  int32_t end_;
  int64_t length_;
};

}  // namespace

std::unique_ptr<MadGenerator> compression(const MadDataOptions& options) {
  return std::make_unique<Compression>(options);
}

}  // namespace fem
