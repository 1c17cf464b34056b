#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/report.h"
#include "io/mixer_config.h"
#include "io/versions.h"
#include "util/check.h"

namespace fem::bench {
namespace {

using Json = nlohmann::ordered_json;

template <typename Number>
Json counted(Number value) {
  return value > 0 ? Json(value) : Json();
}

Json work_of(const Cost& cost, const Speed& speed) {
  return {{"flops", counted(cost.flops)},
          {"bytes", counted(cost.bytes)},
          {"gflops", counted(speed.gflops)},
          {"gbytes_per_s", counted(speed.gbytes_per_s)}};
}

Json configuration_json(const Configuration& c) {
  const Shape& s = c.shape;
  Json json{{"prior", spelled(c.prior)},
            {"shape", {{"name", s.name}, {"dim", s.dim}, {"heads", s.heads}, {"length", s.length}, {"batch", s.batch}}},
            {"head_key", c.head.key},
            {"head_value", c.head.value}};
  json["mixer"] = c.mixer ? Json(to_json(*c.mixer)) : Json();
  return json;
}

}  // namespace

std::ofstream open_json(const std::filesystem::path& path) {
  std::ofstream file(path);
  FEM_CHECK(file.good(), "bench: expected --json to name a file that can be written, got ", path.string());
  return file;
}

void write_json(const std::vector<Case>& cases, const Roof& roof, std::ostream& out) {
  const Json machine = to_json(this_machine());
  for (const Case& c : cases) {
    const bool time = c.unit == Case::Unit::kMilliseconds;
    Json line{{"bench", c.bench}, {"case", c.name()}, {"kind", c.kind}, {"opponent", c.opponent}, {"ratio", c.ratio()}};
    line["ours_ms"] = time ? Json(c.ours) : Json();
    line["opponent_ms"] = time ? Json(c.theirs) : Json();
    line["repeats"] = c.repeats;
    line["target"] = c.target ? Json(*c.target) : Json();
    if (time) {
      line.update(work_of(c.our_cost, c.our_speed()));
      line["opponent_work"] = work_of(c.their_cost, c.their_speed());
    } else {
      line["ours_bytes"] = static_cast<int64_t>(c.ours);
      line["opponent_bytes"] = static_cast<int64_t>(c.theirs);
    }
    line["peak_gflops"] = roof.all_threads.gflops;
    line["peak_gbytes_per_s"] = roof.all_threads.gbytes_per_s;
    line["peak_gflops_one_thread"] = roof.one_thread.gflops;
    line["peak_gbytes_per_s_one_thread"] = roof.one_thread.gbytes_per_s;
    line["configuration"] = configuration_json(c.configuration);
    line["machine"] = machine;
    line["versions"] = versions_json();
    out << line.dump() << "\n";
  }
  FEM_CHECK(out.flush().good(), "bench: writing the --json file failed; is the disk full?");
}

}  // namespace fem::bench
