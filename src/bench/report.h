#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/paired.h"
#include "bench/roof.h"
#include "bench/shapes.h"
#include "bench/work.h"
#include "fem/options.h"
#include "util/progress.h"

namespace fem::bench {

// What of ours is measured.
struct Configuration {
  PriorType prior = PriorType::kSoftmax;
  Shape shape;
  Head head;
  std::optional<MixerOptions> mixer;  // none: the read alone

  std::string name() const { return spelled(prior) + " " + shape.name; }
};

Configuration mixer_configuration(const MixerOptions& options, const Shape& shape);

// One measured comparison: milliseconds, or bytes in the case of memory.
struct Case {
  std::string bench, kind, opponent;  // kind: forward, step, ...
  Configuration configuration;
  enum class Unit { kMilliseconds, kBytes } unit = Unit::kMilliseconds;
  double ours = 0, theirs = 0;
  int64_t repeats = 0;
  std::optional<double> target;  // the ratio we aim at, where one is set
  Cost our_cost, their_cost;     // of times

  std::string name() const { return configuration.name() + " " + kind; }
  double ratio() const { return ours / theirs; }
  // What was reached; 0 where nothing is counted.
  Speed our_speed() const { return speed(our_cost, ours); }
  Speed their_speed() const { return speed(their_cost, theirs); }

 private:
  static Speed speed(const Cost& cost, double ms) {
    return {static_cast<double>(cost.flops) / ms / 1e6, static_cast<double>(cost.bytes) / ms / 1e6};
  }
};

struct Settings {
  std::vector<PriorType> priors;
  std::vector<Shape> shapes;
  int64_t repeats = 0;
};

// Two pieces of work to be compared, and what each must do.
struct Pair {
  Work ours, opponent;
  Cost our_cost = {}, their_cost = {};
};

// Runs the comparisons of one benchmark, shows progress and collects the cases.
class Recorder {
 public:
  Recorder(std::string bench, std::string opponent, const Settings& settings, int64_t timings);

  void time(const Configuration& configuration, const std::string& kind, const Pair& pair,
            std::optional<double> target);
  void memory(const Configuration& configuration, const Pair& pair, std::optional<double> target);

  std::vector<Case> cases() const { return cases_; }

 private:
  std::string bench_, opponent_;
  int64_t repeats_, pairs_done_ = 0;
  Progress progress_;
  std::vector<Case> cases_;
};

// Of decoding the share of the memory's speed is shown, else that of the arithmetic's.
void print_table(const std::vector<Case>& cases, const Roof& roof, std::ostream& out);

// Opened before anything is measured, so that a path that cannot be written costs no time.
std::ofstream open_json(const std::filesystem::path& path);

// One JSON object per line and case: bench, case, kind, opponent, ratio, ours_ms, opponent_ms, repeats, what each side
// had to do and how fast it was, the roof, and what it ran on. Of memory the times are null and ours_bytes and
// opponent_bytes stand beside them.
void write_json(const std::vector<Case>& cases, const Roof& roof, std::ostream& out);

}  // namespace fem::bench
