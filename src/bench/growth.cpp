#include "bench/growth.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "bench/machine.h"
#include "bench/reads.h"
#include "fem/version.h"
#include "io/versions.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem::bench {
namespace {

constexpr int64_t kShortest = 1024;
constexpr double kLinearTarget = 1.05;

double exponent(const std::vector<int64_t>& lengths, const std::vector<double>& times) {
  const auto n = static_cast<double>(lengths.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double a = std::log(static_cast<double>(lengths[i])), b = std::log(times[i]);
    x += a, y += b, xx += a * a, xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

std::string per_second(int64_t tokens, double ms) { return grouped(std::llround(static_cast<double>(tokens) / ms)); }

}  // namespace

double Growth::forward_exponent() const { return exponent(lengths, forward_ms); }
double Growth::training_exponent() const { return exponent(lengths, training_ms); }

std::vector<Growth> bench_growth(const GrowthSettings& settings) {
  std::vector<int64_t> lengths;
  for (int64_t length = kShortest; length <= settings.longest; length *= 2) lengths.push_back(length);
  const bool with_attention =
      std::find(settings.priors.begin(), settings.priors.end(), PriorType::kSoftmax) != settings.priors.end();
  const auto reads = static_cast<int64_t>(settings.priors.size()) + (with_attention ? 1 : 0);
  Progress progress("bench growth", 2 * reads * settings.repeats * static_cast<int64_t>(lengths.size()), "run");
  int64_t done = 0;

  std::vector<Growth> all;
  for (int64_t i = 0; i < reads && !interrupted(); ++i) {
    const bool attention = i == static_cast<int64_t>(settings.priors.size());
    Growth growth{attention ? "torch sdpa" : spelled(settings.priors[i]), lengths, {}, {}};
    const auto work = [&](bool training) {
      std::vector<Work> per_length;
      for (const int64_t length : lengths) {
        const Shape shape{"", 512, 4, length, 1};
        const ReadUnderTest side = attention ? attention_of(shape) : read_of(settings.priors[i], shape);
        per_length.push_back(training ? both_of(side) : forward_of(side));
      }
      return time_all_in_turn(per_length, settings.repeats, [&] { progress.update(++done, growth.read); });
    };
    growth.forward_ms = work(false);
    growth.training_ms = work(true);
    if (!interrupted()) all.push_back(growth);
  }
  return all;
}

void print_growth(const std::vector<Growth>& all, std::ostream& out) {
  if (all.empty()) return;
  std::vector<std::string> head{"thousand tokens/s"};
  for (const int64_t length : all.front().lengths) head.push_back("T " + grouped(length));
  head.insert(head.end(), {"exponent", "target", "met"});
  Table table(head);
  for (const Growth& g : all) {
    const bool quadratic = g.read == "softmax" || g.read == "torch sdpa";
    const auto row = [&](const std::string& what, const std::vector<double>& ms, double n) {
      std::vector<std::string> cells{g.read + " " + what};
      for (size_t i = 0; i < ms.size(); ++i) cells.push_back(per_second(g.lengths[i], ms[i]));
      cells.push_back(fixed(n, 2));
      cells.push_back(quadratic ? "2" : "<= " + fixed(kLinearTarget, 2));
      cells.push_back(quadratic ? "" : n <= kLinearTarget ? "yes" : "no");
      table.add(cells);
    };
    row("forward", g.forward_ms, g.forward_exponent());
    row("forward+backward", g.training_ms, g.training_exponent());
  }
  out << table.str() << "\nReads of D 512, H 4, B 1, float32, " << at::get_num_threads() << " threads, "
      << instruction_set() << " kernels, torch " << TORCH_VERSION
      << ". Time grows as T^exponent, fitted over all lengths.\n";
}

void write_growth_json(const std::vector<Growth>& all, std::ostream& out) {
  for (const Growth& g : all) {
    const nlohmann::ordered_json line{{"bench", "growth"},
                                      {"read", g.read},
                                      {"lengths", g.lengths},
                                      {"forward_ms", g.forward_ms},
                                      {"training_ms", g.training_ms},
                                      {"forward_exponent", g.forward_exponent()},
                                      {"training_exponent", g.training_exponent()},
                                      {"versions", versions_json()}};
    out << line.dump() << "\n";
  }
}

}  // namespace fem::bench
