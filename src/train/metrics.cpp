#include "train/metrics.h"

#include <cstdio>
#include <fstream>

#include "io/atomic_file.h"
#include "io/json.h"
#include "util/check.h"

namespace fem {
namespace {

std::optional<int64_t> step_in(const Json& line) {
  const bool there = line.is_object() && line.contains("step") && line["step"].is_number_integer();
  return there ? std::optional(line["step"].get<int64_t>()) : std::nullopt;
}

std::filesystem::path without_steps_after(int64_t step, const std::filesystem::path& path) {
  const std::vector<Json> lines = read_jsonl(path);
  const auto later = [&](const Json& line) { return step_in(line).value_or(0) > step; };
  if (std::any_of(lines.begin(), lines.end(), later))
    write_atomically(path, [&](std::ostream& file) {
      for (const Json& line : lines)
        if (!later(line)) file << line.dump() << "\n";
    });
  return path;
}

}  // namespace

std::filesystem::path metrics_path(const std::filesystem::path& run) { return run / "metrics.jsonl"; }

int64_t last_step(const std::filesystem::path& run) {
  constexpr std::streamoff kEnd = 4096;
  std::ifstream file(metrics_path(run), std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return 0;
  file.seekg(std::max<std::streamoff>(size - kEnd, 0));
  int64_t step = 0;
  for (std::string text; std::getline(file, text);) {
    if (const auto line = json_if_whole<Json>(text)) step = step_in(*line).value_or(step);
  }
  return step;
}

Json validations_of(const std::filesystem::path& run, const std::string& measure) {
  Json curve = Json::array();
  for (const Json& line : read_jsonl(metrics_path(run)))
    if (line.value("kind", "") == "validation" && line.contains(measure))
      curve.push_back({step_in(line).value_or(0), line[measure]});
  return curve;
}

Metrics::Metrics(const std::filesystem::path& run, int64_t step)
    : path_(without_steps_after(step, metrics_path(run))), events_(std::in_place, run / "tensorboard") {}

void Metrics::warn(const c10::Error& error) {
  if (!warned_) std::fprintf(stderr, "\nwarning: %s; the run goes on\n", error.what_without_backtrace());
  warned_ = true;
}

void Metrics::record(const std::string& kind, int64_t step, const Json& values) {
  Json line{{"kind", kind}, {"step", step}};
  line.update(values);
  try {
    append_jsonl(path_, line);
  } catch (const c10::Error& error) {
    warn(error);
  }
  if (!events_) return;
  try {
    for (const auto& [name, value] : values.items())
      if (value.is_number()) events_->scalar(kind + "/" + name, step, value.get<double>());
    events_->flush();
  } catch (const c10::Error& error) {
    warn(error);
    events_.reset();
  }
}

}  // namespace fem
