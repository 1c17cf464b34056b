// fuzzy_recall: keys and values are motifs of one to three tokens; the values of motifs seen before are to be named.
#include <map>
#include <set>

#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

using Motif = std::vector<int32_t>;

constexpr int64_t kLongest = 3;

class FuzzyRecall final : public MadGenerator {
 public:
  // Keys are made of [0, half), values of [half, pad); the last token pads on the left.
  explicit FuzzyRecall(const MadDataOptions& o)
      : half_((o.vocab_size - 1) / 2), pad_(static_cast<int32_t>(o.vocab_size) - 1), length_(o.length) {
    FEM_CHECK(half_ >= kLongest, "mad: expected data.vocab_size of at least ", 2 * kLongest + 1,
              " for fuzzy_recall, whose motifs have up to ", kLongest, " different tokens, got ", o.vocab_size);
    FEM_CHECK(length_ > 4 * kLongest, "mad: expected data.length of at least ", 4 * kLongest + 1,
              " for fuzzy_recall, so that the last pair can stand there twice, got ", length_);
  }

  int64_t tokens() const override { return length_; }

  MadExample draw(Draws& draws, bool training) const override {
    std::vector<int32_t> x, counted;
    std::map<Motif, Motif> value_of;
    std::set<Motif> seen;
    const auto size = [&] { return 1 + draws.below(kLongest); };
    const auto key = [&] { return draws.distinct(0, half_, training ? size() : kLongest); };
    const auto value = [&] { return draws.distinct(half_, pad_, size()); };
    const auto emit = [&](const Motif& k, const Motif& v, bool counts) {
      x.insert(x.end(), k.begin(), k.end());
      x.insert(x.end(), v.begin(), v.end());
      counted.insert(counted.end(), k.size(), kMadIgnored);
      for (const int32_t token : v) counted.push_back(counts ? token : kMadIgnored);
      seen.insert(k);
    };
    // The pair that stands at the end, and somewhere before if there is room for it from there on.
    const Motif last_key = key(), last_value = value();
    value_of[last_key] = last_value;
    const auto last = static_cast<int64_t>(last_key.size() + last_value.size());
    const int64_t first_place = draws.below(length_ - 2 * last);
    while (static_cast<int64_t>(x.size()) < length_ - last - 2 * kLongest) {
      if (static_cast<int64_t>(x.size()) >= first_place && !seen.count(last_key)) {
        emit(last_key, last_value, /*counts=*/false);
        continue;
      }
      const Motif k = key();
      if (!value_of.count(k)) value_of[k] = value();
      emit(k, value_of[k], seen.count(k) > 0);
    }
    emit(last_key, last_value, /*counts=*/true);
    const auto padding = length_ + 1 - static_cast<int64_t>(x.size());
    x.insert(x.begin(), padding, pad_);
    counted.insert(counted.begin(), padding, kMadIgnored);
    return shifted(x, counted, training);
  }

 private:
  int64_t half_;
  int32_t pad_;
  int64_t length_;
};

}  // namespace

std::unique_ptr<MadGenerator> fuzzy_recall(const MadDataOptions& options) {
  return std::make_unique<FuzzyRecall>(options);
}

}  // namespace fem
