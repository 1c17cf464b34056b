#include <nlohmann/json.hpp>

#include "data/documents.h"
#include "data/idx.h"
#include "data/picture.h"
#include "data/series.h"
#include "evaluate/tasks.h"
#include "io/checksums.h"
#include "models/pixels.h"
#include "readers.h"
#include "report/document.h"
#include "train/metrics.h"
#include "train/same_run.h"
#include "train/sweep.h"
#include "train/trainer_state.h"

namespace fem::fuzz {
namespace {

void documents(const std::string& bytes) {
  const std::filesystem::path path = file_of(bytes, "text.jsonl");
  for (const TextPart& part : cut_into_parts({{.path = path, .bytes = bytes.size(), .named = true}}).parts)
    for_each_document(part, [](std::string_view, bool) {});
}

void series(const std::string& bytes) {
  const Series read = read_series({.csv = file_of(bytes, "series.csv")});
  read.stamp_text(read.rows() + 3);
}

void picture(const std::string& bytes) { fitted(read_picture(file_of(bytes, "picture.png")), 8, 8); }

void idx(const std::string& bytes) { read_idx(file_of(bytes, "pictures"), 3); }

void task(const std::string& bytes) { read_task(file_of(bytes, "task.jsonl")); }

void metrics(const std::string& bytes) {
  const std::filesystem::path path = file_of(bytes, "metrics.jsonl");
  last_step(path.parent_path());
  read_jsonl(path);
}

Grid one_run() {
  Grid grid{.seeds = {1}, .choices = {{}}};
  grid.cells.push_back({.recipe_name = "a", .recipe = nlohmann::json::object()});
  return grid;
}

void results(const std::string& bytes) {
  static const Grid grid = one_run();
  const SweepResults results(file_of(bytes, "results.jsonl"));
  sweep_table(grid, sweep_rows(grid, results));
}

void report(const std::string& bytes) {
  report_document(gather({file_of(bytes, "results.jsonl").parent_path()}), {}, "");
}

void trainer_state(const std::string& bytes) {
  static const nlohmann::json now{{"task", "a"}, {"train", {{"steps", 1}}}};
  const TrainerState state = read_trainer_state(file_of(bytes, "trainer_state.json"));
  check_same_run(state.identity, now, {});
}

void checksums(const std::string& bytes) { damage_in(file_of(bytes, "checksums").parent_path()); }

}  // namespace

const std::vector<Reader>& run_readers() {
  static const std::vector<Reader> readers{{"documents", documents}, {"task", task},
                                           {"metrics", metrics},     {"results", results},
                                           {"report", report},       {"trainer_state", trainer_state},
                                           {"checksums", checksums}, {"series", series},
                                           {"picture", picture},     {"idx", idx}};
  return readers;
}

}  // namespace fem::fuzz
