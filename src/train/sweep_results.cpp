// What a sweep has found: its file and its table.
#include <algorithm>

#include "train/sweep.h"
#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

bool has_finished(const Json& line) { return line.contains("measures"); }

std::optional<double> goal_of(const Json& line) {
  if (!has_finished(line)) return std::nullopt;
  const Json& value = line.at("measures").at(line.at("goal").at("measure").get<std::string>());
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;  // null: not finite
}

}  // namespace

bool is_sweep_result(const Json& line) {
  const auto has = [](const Json& object, const char* name, auto is) {
    return object.is_object() && object.contains(name) && (object[name].*is)();
  };
  if (!has(line, "run", &Json::is_string) || !line.contains("recipe")) return false;
  if (!line.contains("measures")) return has(line, "error", &Json::is_string);
  return has(line, "measures", &Json::is_object) && has(line, "parameters", &Json::is_number_integer) &&
         has(line, "goal", &Json::is_object) && has(line["goal"], "measure", &Json::is_string) &&
         has(line["goal"], "larger_is_better", &Json::is_boolean) &&
         line["measures"].contains(line["goal"]["measure"].get<std::string>());
}

std::filesystem::path sweep_results_path(const std::filesystem::path& out) { return out / "results.jsonl"; }

SweepResults::SweepResults(const std::filesystem::path& file) : file_(file) {
  for (const Json& line : read_jsonl(file)) {
    FEM_CHECK(is_sweep_result(line), "sweep: ", file.string(), ": expected lines with the result of a run, got ",
              line.dump().substr(0, 80), "; remove that line");
    keep(line);
  }
}

void SweepResults::keep(Json line) {
  const auto [place, is_new] = place_of_.try_emplace(line["run"], lines_.size());
  is_new ? lines_.push_back(std::move(line)) : void(lines_[place->second] = std::move(line));
}

const Json* SweepResults::line_of(const GridRun& run) const {
  const auto found = place_of_.find(run.name);
  if (found == place_of_.end()) return nullptr;
  const Json& line = lines_[found->second];
  return nlohmann::json(line["recipe"]) == run.recipe ? &line : nullptr;
}

const Json* SweepResults::finished(const GridRun& run) const {
  const Json* line = line_of(run);
  return line && has_finished(*line) ? line : nullptr;
}

void SweepResults::add(const Grid& grid, const GridRun& run, const Json& more) {
  Json line{{"run", run.name},
            {"cell", Json::object()},
            {"choice", choices_at(grid, run.cell)[run.choice].label},
            {"seed", run.seed}};
  line["reported"] = std::count(grid.seeds.begin(), grid.seeds.end(), run.seed) > 0;  // or to choose by
  for (size_t i = 0; i < grid.axes.size(); ++i) line["cell"][grid.axes[i]] = grid.cells[run.cell].labels[i];
  line.update(more);
  line["recipe"] = run.recipe;
  FEM_CHECK(is_sweep_result(line), "sweep: expected the result of a run, got ", line.dump().substr(0, 80));
  append_jsonl(file_, line);
  keep(std::move(line));
}

void SweepResults::add_finished(const Grid& grid, const GridRun& run, const Json& result) { add(grid, run, result); }

void SweepResults::add_failed(const Grid& grid, const GridRun& run, const std::string& error) {
  add(grid, run, {{"error", error}});
}

CellRuns runs_of(const Grid& grid, const SweepResults& results, size_t cell) {
  CellRuns runs{.labels = grid.cells[cell].labels,
                .choices = {},
                .choosing_seeds = choosing_seeds_at(grid, cell),
                .seeds = grid.seeds};
  const size_t chooser = chooser_of(grid, cell);
  for (const Variant& choice : choices_at(grid, cell)) runs.choices.push_back(choice.label);
  const auto add = [&](size_t own, const std::vector<int64_t>& seeds) {
    for (size_t choice = 0; choice < runs.choices.size(); ++choice)
      for (const int64_t seed : seeds)
        if (const Json* line = results.line_of(run_of(grid, own, choice, seed))) runs.lines[{choice, seed}] = line;
  };
  add(chooser, runs.choosing_seeds);
  add(cell, grid.seeds);
  return runs;
}

std::optional<size_t> chosen(const CellRuns& runs) {
  if (runs.choosing_seeds.empty()) return 0;
  std::vector<std::vector<std::optional<double>>> values(runs.choices.size());
  bool larger_is_better = false;
  for (size_t choice = 0; choice < runs.choices.size(); ++choice) {
    for (const int64_t seed : runs.choosing_seeds) {
      const auto run = runs.lines.find({choice, seed});
      if (run == runs.lines.end()) return std::nullopt;
      values[choice].push_back(goal_of(*run->second));
      if (has_finished(*run->second)) larger_is_better = run->second->at("goal").at("larger_is_better").get<bool>();
    }
  }
  return best_choice(values, larger_is_better);
}

std::optional<size_t> chosen(const Grid& grid, const SweepResults& results, size_t cell) {
  return chosen(runs_of(grid, results, cell));
}

SweepRow sweep_row(const CellRuns& runs) {
  SweepRow row{.labels = runs.labels};
  const auto line_at = [&](size_t choice, int64_t seed) -> const Json* {
    const auto found = runs.lines.find({choice, seed});
    if (found == runs.lines.end()) return nullptr;
    if (has_finished(*found->second)) return found->second;
    ++row.failed;
    return nullptr;
  };
  for (size_t choice = 0; choice < runs.choices.size(); ++choice)
    for (const int64_t seed : runs.choosing_seeds) line_at(choice, seed);
  std::vector<std::pair<std::string, std::vector<double>>> values;
  const std::optional<size_t> best = chosen(runs);
  if (best) row.choice = runs.choices[*best];
  for (size_t i = 0; best && i < runs.seeds.size(); ++i) {
    const Json* line = line_at(*best, runs.seeds[i]);
    if (!line) continue;
    row.runs.push_back(line);
    row.parameters = line->at("parameters");
    if (values.empty())
      for (const auto& [name, value] : line->at("measures").items()) values.push_back({name, {}});
    for (auto& [name, own] : values)
      if (const Json value = line->at("measures").value(name, Json()); value.is_number()) own.push_back(value);
  }
  for (const auto& [name, own] : values) row.measures.emplace_back(name, summarize(own));
  return row;
}

std::vector<SweepRow> sweep_rows(const Grid& grid, const SweepResults& results) {
  std::vector<SweepRow> rows;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) rows.push_back(sweep_row(runs_of(grid, results, cell)));
  return rows;
}

std::string sweep_table(const Grid& grid, const std::vector<SweepRow>& rows) {
  std::vector<std::string> measures;
  bool failures = false;
  for (const SweepRow& row : rows) {
    if (measures.empty())
      for (const auto& [name, summary] : row.measures) measures.push_back(name);
    failures = failures || row.failed > 0;
  }
  std::vector<std::string> header = grid.axes;
  if (!grid.choosing_seeds.empty()) header.push_back("chosen");
  header.insert(header.end(), {"parameters", "seeds"});
  header.insert(header.end(), measures.begin(), measures.end());
  if (failures) header.push_back("failed");
  Table table(header);
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells = row.labels;
    if (!grid.choosing_seeds.empty()) cells.push_back(row.choice.empty() ? "-" : row.choice);
    cells.push_back(row.parameters > 0 ? grouped(row.parameters) : "-");
    cells.push_back(std::to_string(row.measures.empty() ? 0 : row.measures[0].second.count));
    for (const std::string& name : measures) {
      std::string text = "-";
      for (const auto& [own, summary] : row.measures)
        if (own == name && summary.count > 0) text = summary.text(4);
      cells.push_back(text);
    }
    if (failures) cells.push_back(row.failed > 0 ? std::to_string(row.failed) : "");
    table.add(cells);
  }
  return table.str();
}

}  // namespace fem
