#include "bench/benchmarks.h"
#include "bench/reads.h"

namespace fem::bench {
namespace {

constexpr double kReadMemoryTarget = 1.3;

struct ReadTargets {
  std::optional<double> forward, backward;
};

// Linear attention is asked for 4 times torch's tokens a second at T 2048 and 12 times at T 8192.
ReadTargets read_targets_of(PriorType prior, const Shape& s) {
  if (prior == PriorType::kSoftmax) return {0.75, 0.65};
  if (prior != PriorType::kLinear && prior != PriorType::kGla) return {};
  if (s.length >= 8192) return {1.0 / 12, {}};
  if (s.length >= 2048) return {1.0 / 4, {}};
  return {};
}

}  // namespace

std::vector<Case> bench_read(const Settings& settings) {
  Recorder recorder("read", "torch sdpa", settings, 2);
  for (const PriorType prior : settings.priors)
    for (const Shape& s : settings.shapes) {
      const Configuration configuration{prior, s, read_head(s), {}};
      const Flops our_flops = read_flops(prior, s, configuration.head), their_flops = attention_flops(s);
      const ReadUnderTest ours = read_of(prior, s), theirs = attention_of(s);
      const ReadTargets targets = read_targets_of(prior, s);
      recorder.time(configuration, "forward",
                    {forward_of(ours), forward_of(theirs), {our_flops.forward}, {their_flops.forward}},
                    targets.forward);
      recorder.time(configuration, "backward",
                    {backward_of(ours), backward_of(theirs), {our_flops.backward}, {their_flops.backward}},
                    targets.backward);
      recorder.memory(configuration, {both_of(ours), both_of(theirs)}, kReadMemoryTarget);
    }
  return recorder.cases();
}

}  // namespace fem::bench
