#include "bench/report.h"

#include "bench/memory.h"
#include "util/interrupt.h"

namespace fem::bench {

Configuration mixer_configuration(const MixerOptions& options, const Shape& shape) {
  const MixerSizes sizes = sizes_of(options);
  return {options.prior_type, shape, {sizes.head_key, sizes.head_value}, options};
}

Recorder::Recorder(std::string bench, std::string opponent, const Settings& settings, int64_t timings)
    : bench_(std::move(bench)),
      opponent_(std::move(opponent)),
      repeats_(settings.repeats),
      progress_("bench " + bench_,
                settings.repeats * timings * static_cast<int64_t>(settings.shapes.size() * settings.priors.size()),
                "pair") {}

void Recorder::time(const Configuration& configuration, const std::string& kind, const Pair& pair,
                    std::optional<double> target) {
  if (interrupted()) return;
  const std::string name = configuration.name() + " " + kind;
  const PairedTimes t =
      time_in_turn(pair.ours, pair.opponent, repeats_, [&] { progress_.update(++pairs_done_, name); });
  cases_.push_back({bench_, kind, opponent_, configuration, Case::Unit::kMilliseconds, t.ours_ms, t.opponent_ms,
                    t.repeats, target, pair.our_cost, pair.their_cost});
}

void Recorder::memory(const Configuration& configuration, const Pair& pair, std::optional<double> target) {
  if (interrupted()) return;
  cases_.push_back({bench_, "memory", opponent_, configuration, Case::Unit::kBytes,
                    static_cast<double>(memory_of(pair.ours).peak_bytes),
                    static_cast<double>(memory_of(pair.opponent).peak_bytes), 1, target});
}

}  // namespace fem::bench
