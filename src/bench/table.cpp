#include "util/table.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <algorithm>

#include "bench/report.h"
#include "fem/version.h"

namespace fem::bench {
namespace {

std::string figure(const Case& c, double value) {
  return c.unit == Case::Unit::kMilliseconds ? fixed(value, 2) + " ms" : fixed(value / 1048576, 1) + " MiB";
}

std::string met(const Case& c) {
  if (!c.target) return "";
  return c.ratio() <= *c.target ? "yes" : "no";
}

// Nothing is said of what is not counted.
std::string rate(double speed) { return speed > 0 ? fixed(speed, speed < 10 ? 1 : 0) : ""; }
std::string share(double speed, double peak) { return speed > 0 ? fixed(100 * speed / peak, 0) : ""; }

// "forward, step (3 of 12 cases)": the kinds of cases which that roof binds.
std::string kinds_bound(const std::vector<Case>& cases, const Speed& roof, bool by_memory) {
  struct Kind {
    std::string name;
    int64_t cases = 0, bound = 0;
  };
  std::vector<Kind> kinds;
  for (const Case& c : cases) {
    if (c.our_cost.flops == 0 && c.our_cost.bytes == 0) continue;
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == c.kind; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {c.kind});
    ++kind->cases;
    kind->bound += memory_binds(c.our_cost, roof) == by_memory;
  }
  std::string text;
  for (const Kind& k : kinds) {
    if (k.bound == 0) continue;
    text += (text.empty() ? "" : ", ") + k.name;
    if (k.bound < k.cases) text += " (" + grouped(k.bound) + " of " + grouped(k.cases) + " cases)";
  }
  return text;
}

void print_notes(const std::vector<Case>& cases, const Roof& roof, bool moves, std::ostream& out) {
  const Speed &all = roof.all_threads, &one = roof.one_thread;
  out << "\nMedians of pairs run in turn against " << cases.front().opponent << ", float32, " << at::get_num_threads()
      << " threads, " << instruction_set() << " kernels, torch " << TORCH_VERSION << ".\n";
  if (moves)
    out << "GB/s: every weight once, and the past: keys and values read, sums read and written. What stays in the\n"
           "processor's caches from step to step can be faster than memory.\n";
  else
    out << "GFLOP/s: products only, 2 a multiply-add, the causal half; 5 of them in a read's backward, 2 in its\n"
           "forward. Exponentials, gates and the reads of rnn_softmax, rnn_decay and mamba are not counted.\n";
  out << "Roof: " << fixed(all.gflops, 0) << " GFLOP/s, " << fixed(all.gbytes_per_s, 1)
      << " GB/s measured in this run with " << at::get_num_threads() << " threads (one thread: " << fixed(one.gflops, 0)
      << ", " << fixed(one.gbytes_per_s, 1) << ").\n";
  for (const bool by_memory : {false, true})
    if (const std::string kinds = kinds_bound(cases, all, by_memory); !kinds.empty())
      out << (by_memory ? "Memory" : "Arithmetic") << " is the roof of " << kinds << ".\n";
}

}  // namespace

void print_table(const std::vector<Case>& cases, const Roof& roof, std::ostream& out) {
  if (cases.empty()) return;
  const bool moves = std::any_of(cases.begin(), cases.end(), [](const Case& c) { return c.our_cost.bytes > 0; });
  const auto shown = [moves](const Speed& speed) { return moves ? speed.gbytes_per_s : speed.gflops; };
  const double peak = shown(roof.all_threads);
  Table table(
      {"case", "ours", "torch", "ratio", "target", "met", moves ? "GB/s" : "GFLOP/s", "% roof", "torch", "% roof"});
  for (const Case& c : cases) {
    const double ours = shown(c.our_speed()), theirs = shown(c.their_speed());
    table.add({c.name(), figure(c, c.ours), figure(c, c.theirs), fixed(c.ratio(), 2),
               c.target ? "<= " + fixed(*c.target, 2) : "", met(c), rate(ours), share(ours, peak), rate(theirs),
               share(theirs, peak)});
  }
  out << table.str();
  print_notes(cases, roof, moves, out);
}

}  // namespace fem::bench
