#include "models/sampling.h"

#include <algorithm>
#include <cmath>

#include "util/check.h"

namespace fem {
namespace {

struct Candidate {
  int64_t token;
  double weight;  // its probability, up to a factor that all have in common
};
using Candidates = std::vector<Candidate>;

std::mt19937_64 generator_of(uint64_t seed, uint64_t row) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(row),
                         static_cast<uint32_t>(row >> 32)};
  return std::mt19937_64(sequence);
}

// In [0, 1). The standard's own distributions differ between libraries.
double uniform(std::mt19937_64& generator) { return static_cast<double>(generator() >> 11) * 0x1p-53; }

double total(const Candidates& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// Of two that are equally likely the earlier token goes first.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

bool earlier(const Candidate& a, const Candidate& b) { return a.token < b.token; }

void keep_top_k(Candidates& candidates, int64_t k) {
  if (k >= static_cast<int64_t>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), likelier);
  candidates.resize(k);
}

void keep_top_p(Candidates& candidates, double p) {
  if (p >= 1) return;
  const double all = total(candidates);
  // Those below this share hold less than 1 - p together: only the others need sorting.
  const double least = all * (1 - p) / static_cast<double>(candidates.size());
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.weight < least; });
  std::sort(candidates.begin(), candidates.end(), likelier);
  double held = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || held < p * all)) held += candidates[kept++].weight;
  candidates.resize(kept);
}

int64_t draw(const Candidates& candidates, std::mt19937_64& generator) {
  double left = uniform(generator) * total(candidates);
  for (const Candidate& candidate : candidates) {
    if (left < candidate.weight) return candidate.token;
    left -= candidate.weight;
  }
  // Rounding may leave a little: it belongs to the last that can be drawn at all.
  return std::find_if(candidates.rbegin(), candidates.rend(), [](const Candidate& c) { return c.weight > 0; })->token;
}

}  // namespace

TokenSampler::TokenSampler(const GenerateOptions& options, size_t row, const std::vector<int64_t>& prompt,
                           int64_t vocab_size)
    : options_(options), generator_(generator_of(options.seed, row)), seen_(vocab_size) {
  for (const int64_t token : prompt) seen_[token] = true;
}

int64_t TokenSampler::choose(std::vector<double> logits) {
  const double penalty = options_.repetition_penalty;
  if (penalty != 1)
    for (size_t token = 0; token < logits.size(); ++token)
      if (seen_[token]) logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;

  const auto highest = std::max_element(logits.begin(), logits.end());
  FEM_CHECK(
      std::isfinite(*highest) && std::none_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); }),
      "generate: expected finite logits, but the model's are not; its parameters may be broken");
  int64_t token = highest - logits.begin();
  if (options_.temperature > 0) {
    Candidates candidates;
    candidates.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      candidates.push_back({static_cast<int64_t>(i), std::exp((logits[i] - *highest) / options_.temperature)});
    if (options_.top_k) keep_top_k(candidates, *options_.top_k);
    if (options_.top_p) keep_top_p(candidates, *options_.top_p);
    // In the order of tokens, so that a draw means the same whatever was cut.
    if (options_.top_k || options_.top_p) std::sort(candidates.begin(), candidates.end(), earlier);
    token = draw(candidates, generator_);
  }
  seen_[token] = true;
  return token;
}

}  // namespace fem
