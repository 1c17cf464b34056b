// MAD's six synthetic tasks (Poli et al. 2024) and one beside them: what is drawn, and what learns it.
#pragma once

#include <cstdint>

#include "fem/backbone.h"
#include "fem/options.h"

namespace fem {

enum class MadKind {
  kInContextRecall,
  kNoisyRecall,
  kFuzzyRecall,
  kMemorization,
  kCompression,
  kSelectiveCopying,
  kLongestIncreasing,
};
template <>
struct Spelling<MadKind> {
  static constexpr std::array values{std::pair{std::string_view("in_context_recall"), MadKind::kInContextRecall},
                                     std::pair{std::string_view("noisy_recall"), MadKind::kNoisyRecall},
                                     std::pair{std::string_view("fuzzy_recall"), MadKind::kFuzzyRecall},
                                     std::pair{std::string_view("memorization"), MadKind::kMemorization},
                                     std::pair{std::string_view("compression"), MadKind::kCompression},
                                     std::pair{std::string_view("selective_copying"), MadKind::kSelectiveCopying},
                                     std::pair{std::string_view("longest_increasing"), MadKind::kLongestIncreasing}};
};

struct MadDataOptions {
  MadKind kind = MadKind::kInContextRecall;
  int64_t vocab_size = 0;
  int64_t length = 0;
  int64_t train_examples = 0;
  int64_t test_examples = 1280;
  double noise = 0.2;
  int64_t copied = 16;
  int64_t seed = 12345;
};

template <typename Options, typename Visitor>
void visit_mad_data(Options& o, Visitor&& visit) {
  visit("kind", o.kind,
        "in_context_recall, noisy_recall, fuzzy_recall, memorization, compression, selective_copying or "
        "longest_increasing");
  visit("vocab_size", o.vocab_size, "tokens V, all special ones included; 0: the kind's published baseline");
  visit("length", o.length, "length T of an example, as published for its kind; 0: the baseline");
  visit("train_examples", o.train_examples, "training examples, drawn once and read over and over; 0: the baseline");
  visit("test_examples", o.test_examples, "examples of a validation, drawn after those of training");
  visit("noise", o.noise, "noisy_recall: how often noise stands in the place of a pair");
  visit("copied", o.copied, "selective_copying: tokens to copy");
  visit("seed", o.seed, "of the examples; train.seed is that of parameters and order");
}

struct MadOptions {
  MadDataOptions data;
  BackboneOptions model;
};

}  // namespace fem
