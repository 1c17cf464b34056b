#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/paired.h"
#include "bench/shapes.h"
#include "fem/options.h"
#include "util/progress.h"

namespace fem::bench {

// One measured comparison: milliseconds, or bytes in the case of memory.
struct Case {
  std::string bench, name, opponent;
  enum class Unit { kMilliseconds, kBytes } unit = Unit::kMilliseconds;
  double ours = 0, theirs = 0;
  int64_t repeats = 0;
  std::optional<double> target;  // the ratio we aim at, where one is set

  double ratio() const { return ours / theirs; }
};

struct Settings {
  std::vector<PriorType> priors;
  std::vector<Shape> shapes;
  int64_t repeats = 0;
};

// Two pieces of work to be compared.
struct Pair {
  Work ours, opponent;
};

// Runs the comparisons of one benchmark, shows progress and collects the cases.
class Recorder {
 public:
  Recorder(std::string bench, std::string opponent, const Settings& settings, int64_t timings);

  void time(const std::string& name, const Pair& pair, std::optional<double> target);
  void memory(const std::string& name, const Pair& pair, std::optional<double> target);

  std::vector<Case> cases() const { return cases_; }

 private:
  std::string bench_, opponent_;
  int64_t repeats_, pairs_done_ = 0;
  Progress progress_;
  std::vector<Case> cases_;
};

void print_table(const std::vector<Case>& cases, std::ostream& out);

// Opened before anything is measured, so that a path that cannot be written costs no time.
std::ofstream open_json(const std::filesystem::path& path);

// One JSON object per line and case: bench, case, opponent, ratio, ours_ms, opponent_ms, repeats, and what it ran on.
// Of memory the times are null and ours_bytes and opponent_bytes stand beside them.
void write_json(const std::vector<Case>& cases, std::ostream& out);

}  // namespace fem::bench
