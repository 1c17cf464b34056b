// One example after another of a MAD task. A new kind is a class in a file of its own and a row of generators.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tasks/mad/options.h"

namespace fem {

inline constexpr int32_t kMadIgnored = -100;  // a target that does not count

// A stream of random numbers that is the same with every standard library.
class Draws {
 public:
  explicit Draws(uint64_t seed) : generator_(seed) {}

  int32_t below(int64_t bound);  // uniform in [0, bound)
  int32_t between(int64_t begin, int64_t end) { return static_cast<int32_t>(begin + below(end - begin)); }
  bool chance(double probability);
  std::vector<int32_t> distinct(int64_t begin, int64_t end, int64_t count);  // of [begin, end), in random order

 private:
  std::mt19937_64 generator_;
};

// Tokens as a model reads them, and for each the token it should name, or kMadIgnored.
struct MadExample {
  std::vector<int32_t> tokens, targets;
};

class MadGenerator {
 public:
  virtual ~MadGenerator() = default;

  virtual int64_t tokens() const = 0;  // of an example
  // Training examples differ from those of the test in what counts, and for fuzzy recall in what is drawn.
  virtual MadExample draw(Draws& draws, bool training) const = 0;
};

// Throws one sentence if there are no such examples. draws gives what all examples share.
std::unique_ptr<MadGenerator> in_context_recall(const MadDataOptions& options);
std::unique_ptr<MadGenerator> noisy_recall(const MadDataOptions& options);
std::unique_ptr<MadGenerator> fuzzy_recall(const MadDataOptions& options);
std::unique_ptr<MadGenerator> memorization(const MadDataOptions& options, Draws& draws);
std::unique_ptr<MadGenerator> compression(const MadDataOptions& options);
std::unique_ptr<MadGenerator> selective_copying(const MadDataOptions& options);
std::unique_ptr<MadGenerator> longest_increasing(const MadDataOptions& options);

std::unique_ptr<MadGenerator> mad_generator(const MadDataOptions& options, Draws& draws);

// The published baseline for what the options leave open, checked.
MadDataOptions completed_mad_data(const MadDataOptions& options);

// tokens x as a model of language reads them: all but the last in, and for each its successor, or of the test what
// counts of it.
MadExample shifted(const std::vector<int32_t>& x, const std::vector<int32_t>& counted, bool training);

}  // namespace fem
