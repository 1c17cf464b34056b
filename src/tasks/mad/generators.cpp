#include <array>
#include <numeric>

#include "tasks/mad/generator.h"
#include "util/check.h"

namespace fem {
namespace {

// What a kind is like where the recipe does not say.
struct Baseline {
  int64_t vocab_size, length, train_examples;
};

Baseline baseline_of(MadKind kind) {
  switch (kind) {
    case MadKind::kNoisyRecall:
      return {32, 128, 12800};
    case MadKind::kMemorization:
      return {256, 32, 256};
    case MadKind::kCompression:
      return {16, 32, 12800};
    case MadKind::kSelectiveCopying:
      return {16, 256, 12800};
    case MadKind::kLongestIncreasing:
      return {32, 32, 12800};
    case MadKind::kInContextRecall:
    case MadKind::kFuzzyRecall:
      break;
  }
  return {16, 128, 12800};
}

}  // namespace

int32_t Draws::below(int64_t bound) {
  const auto range = static_cast<uint64_t>(bound);
  const uint64_t fair = UINT64_MAX - UINT64_MAX % range;  // beyond it small numbers would be likelier
  uint64_t drawn;
  do drawn = generator_();
  while (drawn >= fair);
  return static_cast<int32_t>(drawn % range);
}

bool Draws::chance(double probability) {
  constexpr double kStep = 0x1p-53;
  return static_cast<double>(generator_() >> 11) * kStep < probability;
}

std::vector<int32_t> Draws::distinct(int64_t begin, int64_t end, int64_t count) {
  std::vector<int32_t> all(end - begin);
  std::iota(all.begin(), all.end(), static_cast<int32_t>(begin));
  for (int64_t i = 0; i < count; ++i) std::swap(all[i], all[between(i, end - begin)]);
  all.resize(count);
  return all;
}

MadExample shifted(const std::vector<int32_t>& x, const std::vector<int32_t>& counted, bool training) {
  const std::vector<int32_t>& targets = training ? x : counted;
  return {{x.begin(), x.end() - 1}, {targets.begin() + 1, targets.end()}};
}

std::unique_ptr<MadGenerator> mad_generator(const MadDataOptions& options, Draws& draws) {
  switch (options.kind) {
    case MadKind::kInContextRecall:
      return in_context_recall(options);
    case MadKind::kNoisyRecall:
      return noisy_recall(options);
    case MadKind::kFuzzyRecall:
      return fuzzy_recall(options);
    case MadKind::kMemorization:
      return memorization(options, draws);
    case MadKind::kCompression:
      return compression(options);
    case MadKind::kSelectiveCopying:
      return selective_copying(options);
    case MadKind::kLongestIncreasing:
      return longest_increasing(options);
  }
  FEM_CHECK(false, "mad: expected one of the kinds in tasks/mad/options.h, got number ",
            static_cast<int>(options.kind));
}

MadDataOptions completed_mad_data(const MadDataOptions& given) {
  MadDataOptions o = given;
  const Baseline baseline = baseline_of(o.kind);
  if (o.vocab_size == 0) o.vocab_size = baseline.vocab_size;
  if (o.length == 0) o.length = baseline.length;
  if (o.train_examples == 0) o.train_examples = baseline.train_examples;
  constexpr int64_t kLargest = 1 << 24;  // so that all examples fit into memory
  for (const auto& [name, value] : {std::pair{"vocab_size", o.vocab_size},
                                    {"length", o.length},
                                    {"train_examples", o.train_examples},
                                    {"test_examples", o.test_examples},
                                    {"copied", o.copied}})
    FEM_CHECK(value >= 1 && value <= kLargest, "mad: expected data.", name, " from 1 to ", kLargest, ", got ", value);
  FEM_CHECK(o.noise >= 0 && o.noise <= 1, "mad: expected data.noise from 0 to 1, got ", o.noise);
  FEM_CHECK(o.seed >= 0, "mad: expected data.seed of at least 0, got ", o.seed);
  Draws draws(0);
  mad_generator(o, draws);  // checks the rest
  return o;
}

}  // namespace fem
