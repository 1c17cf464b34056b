#include "report/study.h"

#include <algorithm>

#include "util/check.h"

namespace fem {
namespace {

template <typename Value>
size_t place_in(std::vector<Value>& all, const Value& one) {
  const auto found = std::find(all.begin(), all.end(), one);
  if (found != all.end()) return static_cast<size_t>(found - all.begin());
  all.push_back(one);
  return all.size() - 1;
}

std::vector<std::string> axes_of(const Json& line) {
  std::vector<std::string> axes;
  for (const auto& [axis, label] : line["cell"].items()) axes.push_back(axis);
  return axes;
}

std::vector<std::string> labels_of(const Json& line) {
  std::vector<std::string> labels;
  for (const auto& [axis, label] : line["cell"].items()) labels.push_back(label);
  return labels;
}

void check_lines(const Study& study) {
  for (const Json& line : study.lines) {
    bool fits = is_sweep_result(line) && line.value("cell", Json()).is_object() &&
                line.value("reported", Json()).is_boolean() && line.value("seed", Json()).is_number_integer() &&
                line.value("choice", Json()).is_string();
    if (fits)
      for (const auto& [axis, label] : line["cell"].items()) fits = fits && label.is_string();
    FEM_CHECK(fits, "report: ", study.place,
              ": expected the result of a run with its cell, choice and seed, and whether it is reported, got ",
              line.dump().substr(0, 80), "; remove that line");
    FEM_CHECK(axes_of(line) == axes_of(study.lines[0]), "report: ", study.place,
              ": expected runs of one grid, got cells ", study.lines[0]["cell"].dump(), " and ", line["cell"].dump());
  }
}

}  // namespace

void complete(Study& study) {
  FEM_CHECK(!study.lines.empty(), "report: ", study.place, ": expected results of runs, got none; has any run ended?");
  check_lines(study);
  study.axes = axes_of(study.lines[0]);
  std::vector<std::vector<std::string>> places;
  std::vector<std::vector<const Json*>> cells;
  for (const Json& line : study.lines) {
    const size_t cell = place_in(places, labels_of(line));
    cells.resize(places.size());
    cells[cell].push_back(&line);
    if (study.measure.empty() && line.contains("measures")) {
      study.measure = line["goal"]["measure"];
      study.larger_is_better = line["goal"]["larger_is_better"];
    }
  }
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    CellRuns runs{.labels = places[cell]};
    for (const Json* line : cells[cell])
      place_in(line->at("reported").get<bool>() ? runs.seeds : runs.choosing_seeds, line->at("seed").get<int64_t>());
    // The first of equals is chosen, or of all where nothing chooses: the one that was reported last.
    for (auto line = cells[cell].rbegin(); line != cells[cell].rend(); ++line)
      if ((*line)->at("reported").get<bool>()) place_in(runs.choices, (*line)->at("choice").get<std::string>());
    for (const Json* line : cells[cell])
      runs.lines[{place_in(runs.choices, line->at("choice").get<std::string>()), line->at("seed")}] = line;
    study.rows.push_back(sweep_row(runs));
    if (runs.seeds.empty()) study.rows.back().choice.clear();  // other choices may still be running
  }
}

}  // namespace fem
