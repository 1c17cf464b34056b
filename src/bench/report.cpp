#include "bench/report.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>

#include "bench/memory.h"
#include "fem/version.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/table.h"

namespace fem::bench {

Recorder::Recorder(std::string bench, std::string opponent, const Settings& settings, int64_t timings)
    : bench_(std::move(bench)),
      opponent_(std::move(opponent)),
      repeats_(settings.repeats),
      progress_("bench " + bench_,
                settings.repeats * timings * static_cast<int64_t>(settings.shapes.size() * settings.priors.size()),
                "pair") {}

void Recorder::time(const std::string& name, const Pair& pair, std::optional<double> target) {
  if (interrupted()) return;
  const PairedTimes t =
      time_in_turn(pair.ours, pair.opponent, repeats_, [&] { progress_.update(++pairs_done_, name); });
  cases_.push_back({bench_, name, opponent_, Case::Unit::kMilliseconds, t.ours_ms, t.opponent_ms, t.repeats, target});
}

void Recorder::memory(const std::string& name, const Pair& pair, std::optional<double> target) {
  if (interrupted()) return;
  cases_.push_back({bench_, name, opponent_, Case::Unit::kBytes, static_cast<double>(peak_extra_bytes(pair.ours)),
                    static_cast<double>(peak_extra_bytes(pair.opponent)), 1, target});
}

void print_table(const std::vector<Case>& cases, std::ostream& out) {
  if (cases.empty()) return;
  Table table({"case", "ours", cases.front().opponent, "ratio", "target", "met"});
  for (const Case& c : cases) {
    const bool time = c.unit == Case::Unit::kMilliseconds;
    const auto figure = [&](double value) {
      return time ? fixed(value, 2) + " ms" : fixed(value / 1048576, 1) + " MiB";
    };
    table.add({c.name, figure(c.ours), figure(c.theirs), fixed(c.ratio(), 2),
               c.target ? "<= " + fixed(*c.target, 2) : "",
               !c.target                ? ""
               : c.ratio() <= *c.target ? "yes"
                                        : "no"});
  }
  out << table.str() << "\nMedians of pairs run in turn, float32, " << at::get_num_threads() << " threads, "
      << instruction_set() << " kernels, torch " << TORCH_VERSION << ".\n";
}

std::ofstream open_json(const std::filesystem::path& path) {
  std::ofstream file(path);
  FEM_CHECK(file.good(), "bench: expected --json to name a file that can be written, got ", path.string());
  return file;
}

void write_json(const std::vector<Case>& cases, std::ostream& out) {
  for (const Case& c : cases) {
    const bool time = c.unit == Case::Unit::kMilliseconds;
    nlohmann::ordered_json line{{"bench", c.bench}, {"case", c.name}, {"opponent", c.opponent}, {"ratio", c.ratio()}};
    line["ours_ms"] = time ? nlohmann::ordered_json(c.ours) : nullptr;
    line["opponent_ms"] = time ? nlohmann::ordered_json(c.theirs) : nullptr;
    line["repeats"] = c.repeats;
    line["target"] = c.target ? nlohmann::ordered_json(*c.target) : nullptr;
    if (!time) {
      line["ours_bytes"] = static_cast<int64_t>(c.ours);
      line["opponent_bytes"] = static_cast<int64_t>(c.theirs);
    }
    line["versions"] = {
        {"fem", version()}, {"torch", TORCH_VERSION}, {"isa", instruction_set()}, {"threads", at::get_num_threads()}};
    out << line.dump() << "\n";
  }
  FEM_CHECK(out.flush().good(), "bench: writing the --json file failed; is the disk full?");
}

}  // namespace fem::bench
