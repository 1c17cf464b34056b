#include <algorithm>
#include <set>

#include "experiments/argmax/config.h"
#include "io/json.h"
#include "report/cost.h"
#include "report/study.h"
#include "train/metrics.h"
#include "train/run_folder.h"
#include "util/check.h"
#include "util/shell.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTraining = "training loss";  // of batches, beside the measures of validations

Curve curve_of_run(const fs::path& run, std::vector<std::string> labels, int64_t seed) {
  Curve curve{.labels = std::move(labels), .seed = seed};
  for (const Json& line : read_jsonl(metrics_path(run))) {
    const Json kind = line.value("kind", Json());
    if (!line.value("step", Json()).is_number_integer()) continue;
    const int64_t step = line["step"];
    for (const auto& [name, value] : line.items()) {
      if (name == "step" || !value.is_number()) continue;
      if (kind == "validation") curve.measures[name][step] = value;
      if (kind == "train" && name == "loss") curve.measures[kTraining][step] = value;
    }
  }
  return curve;
}

void expect_fields(const Json& line, const fs::path& file, std::initializer_list<const char*> numbers) {
  for (const char* name : numbers)
    FEM_CHECK(line.contains(name) && line[name].is_number(), "report: ", file.string(), ": expected a number \"", name,
              "\" in the line of a run, got ", line.dump().substr(0, 80), "; remove that line");
}

std::vector<std::string> words_in(const Json& cell) {
  std::vector<std::string> labels;
  for (const auto& [axis, label] : cell.items()) labels.push_back(label);
  return labels;
}

// Points are [step, value]; what is none of these, as of a run that diverged, is left out.
void add_points(Curve& curve, const std::string& measure, const Json& points) {
  for (const Json& point : points)
    if (point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_number())
      curve.measures[measure][point[0]] = point[1];
}

Study sweep_study(const fs::path& folder) {
  Study study;
  study.kind = "fem sweep";
  study.place = folder.string();
  study.lines = SweepResults(sweep_results_path(folder)).lines();
  complete(study);
  for (const SweepRow& row : study.rows) {
    for (const Json* line : row.runs) {
      Curve curve{.labels = row.labels, .seed = line->at("seed")};
      add_points(curve, study.measure, line->value("curve", Json::array()));
      const Json others = line->value("curves", Json::object());
      for (const auto& [measure, points] : others.items()) add_points(curve, measure, points);
      if (!curve.measures.empty()) study.curves.push_back(std::move(curve));
    }
  }
  return study;
}

// The fields besides seed and mixer that differ between runs, which make cells as the mixer does.
std::vector<std::string> varied(const std::vector<Json>& lines) {
  std::vector<std::string> names;
  for (const auto& [name, value] : lines[0]["config"].items())
    if (name != "seed" && name != "mixer" &&
        std::any_of(lines.begin(), lines.end(),
                    [&, first = value](const Json& line) { return line["config"].value(name, Json()) != first; }))
      names.push_back(name);
  return names;
}

Json argmax_cell(const Json& config, const std::vector<std::string>& names) {
  Json cell{{"mixer", config.at("mixer")}};
  for (const std::string& name : names) {
    const Json value = config.value(name, Json());
    cell[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return cell;
}

// The call that makes these very runs, if they are all of a preset but for prior and seeds.
std::string argmax_command(const std::vector<Json>& lines) {
  std::set<int64_t> seeds;
  for (const Json& line : lines) seeds.insert(line["config"]["seed"].get<int64_t>());
  const Json& first = lines[0]["config"];
  for (const char* name : {"smoke", "demo", "mini", "paper"}) {
    const ArgmaxPlan plan = argmax_preset(name);
    Json preset = to_json(plan.run);
    for (const char* own : {"mixer", "seed", "prior"}) preset[own] = first.value(own, Json());
    if (preset != first || *seeds.begin() != 0 || *seeds.rbegin() != static_cast<int64_t>(seeds.size()) - 1) continue;
    std::vector<std::string> words{"fem", "experiment", "argmax", "--preset", name};
    if (static_cast<int64_t>(seeds.size()) != plan.seeds)
      words.insert(words.end(), {"--seeds", std::to_string(seeds.size())});
    if (first["prior"] != "softmax") words.insert(words.end(), {"--prior", first["prior"]});
    return shell_command(words);
  }
  return "";
}

Study argmax_study(const fs::path& folder, const std::vector<Json>& lines) {
  const fs::path file = sweep_results_path(folder), curve_file = folder / "curve.jsonl";
  Study study;
  study.kind = "fem experiment argmax";
  study.place = folder.string();
  std::map<std::string, Json> last;  // of a configuration
  for (const Json& line : lines) {
    expect_fields(line, file, {"parameters", "validation_loss", "accuracy"});
    const Json config = line.value("config", Json());
    FEM_CHECK(config.is_object() && config.value("mixer", Json()).is_string() &&
                  config.value("prior", Json()).is_string() && config.value("seed", Json()).is_number_integer(),
              "report: ", file.string(), ": expected a config with mixer, prior and seed, got ",
              line.dump().substr(0, 80), "; remove that line");
  }
  const std::vector<std::string> names = varied(lines);
  if (names.empty()) study.command = argmax_command(lines);
  for (const Json& line : lines)
    last[line["config"].dump()] = {{"run", line["config"].dump()},
                                   {"cell", argmax_cell(line["config"], names)},
                                   {"choice", ""},
                                   {"reported", true},
                                   {"seed", line["config"]["seed"]},
                                   {"parameters", line["parameters"]},
                                   {"goal", {{"measure", "accuracy"}, {"larger_is_better", true}}},
                                   {"measures", {{"accuracy", line["accuracy"]}, {"loss", line["validation_loss"]}}},
                                   {"recipe", line["config"]}};
  for (const auto& [config, line] : last) study.lines.push_back(line);
  complete(study);
  std::map<std::string, Curve> curves;
  for (const Json& line : read_jsonl(curve_file)) {
    if (!last.count(line.value("config", Json()).dump())) continue;  // of a run that is not finished
    expect_fields(line, curve_file, {"step", "validation_loss", "accuracy"});
    const Json& config = line["config"];
    Curve& curve = curves[config.dump()];
    curve.labels = words_in(argmax_cell(config, names));
    curve.seed = config["seed"];
    curve.measures["accuracy"][line["step"]] = line["accuracy"];
    curve.measures["loss"][line["step"]] = line["validation_loss"];
  }
  for (auto& [config, curve] : curves) study.curves.push_back(std::move(curve));
  return study;
}

Study language_study(const fs::path& folder, const std::vector<Json>& lines) {
  Study study;
  study.kind = "experiments/lm/run.py";
  study.place = folder.string();
  for (const Json& line : lines) {
    expect_fields(line, sweep_results_path(folder), {"seed", "loss", "bits_per_byte", "parameters"});
    FEM_CHECK(line.value("mixer", Json()).is_string() && line.value("text", Json()).is_string(),
              "report: ", sweep_results_path(folder).string(),
              ": expected a mixer and a text in the line of a run, got ", line.dump().substr(0, 80),
              "; remove that line");
    study.lines.push_back({{"run", ""},
                           {"cell", {{"mixer", line["mixer"]}, {"text", line["text"]}}},
                           {"choice", ""},
                           {"reported", true},
                           {"seed", line["seed"]},
                           {"parameters", line["parameters"]},
                           {"goal", {{"measure", "loss"}, {"larger_is_better", false}}},
                           {"measures", {{"loss", line["loss"]}, {"bits_per_byte", line["bits_per_byte"]}}},
                           {"recipe", line.value("config", Json::object())}});
  }
  complete(study);
  return study;
}

// The folders' names, or their whole paths where two have one name.
std::vector<std::string> names_of(const std::vector<fs::path>& runs) {
  std::vector<std::string> names, paths;
  for (const fs::path& run : runs) {
    const fs::path whole = fs::canonical(run);
    names.push_back(whole.filename().string());
    paths.push_back(whole.string());
  }
  return std::set(names.begin(), names.end()).size() == names.size() ? names : paths;
}

Study runs_study(const std::vector<fs::path>& runs) {
  Study study;
  study.kind = "fem train";
  const std::vector<std::string> names = names_of(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const fs::path& run = runs[i];
    const std::string& name = names[i];
    study.place += (study.place.empty() ? "" : " ") + shell_word(run.string());
    const Json recipe = recipe_of_run(run);
    const Json drawn_by = recipe["train"].is_object() ? recipe["train"].value("seed", Json()) : Json();
    const int64_t seed = drawn_by.is_number_integer() ? drawn_by.get<int64_t>() : 0;
    Json line{{"run", name}, {"cell", {{"run", name}}}, {"choice", ""}, {"reported", true}, {"seed", seed}};
    const Json result = fs::exists(result_path(run)) ? Json(read_json(result_path(run), "report")) : Json();
    line.update(result.is_object() ? result : Json{{"error", "has not finished"}});
    line["recipe"] = recipe;
    study.lines.push_back(std::move(line));
    study.curves.push_back(curve_of_run(run, {name}, seed));
    study.command += (i ? "\n" : "") + shell_command(std::vector<std::string>{"fem", "train", run.string(), "--out",
                                                                              run.string() + "-again"});
  }
  complete(study);
  return study;
}

bool is_run(const fs::path& place) { return !recipe_of_run(place).is_null() && fs::exists(metrics_path(place)); }

Study study_of(const fs::path& place) {
  constexpr const char* kKnown =
      "expected the folder of fem sweep, fem train or fem experiment, or experiments/lm (results.jsonl, or config.json "
      "with metrics.jsonl)";
  FEM_CHECK(fs::is_directory(place), "report: ", kKnown, ", but ", place.string(), " is no folder");
  const std::vector<Json> lines = read_jsonl(sweep_results_path(place));
  FEM_CHECK(!lines.empty(), "report: ", kKnown, ", but ", place.string(), " has no results");
  const Json& first = lines[0];
  if (first.contains("run") && first.contains("recipe")) return sweep_study(place);
  if (first.value("experiment", Json()) == "argmax") return argmax_study(place, lines);
  if (first.value("experiment", Json()) == "cost") return cost_study(place);
  if (first.value("text", Json()).is_string() && first.value("mixer", Json()).is_string())
    return language_study(place, lines);
  FEM_CHECK(false, "report: ", kKnown, ", but ", sweep_results_path(place).string(), " begins with ",
            first.dump().substr(0, 80));
}

std::string page_command(const std::vector<fs::path>& places) {
  std::vector<std::string> words{"fem", "report"};
  for (const fs::path& place : places) words.push_back(place.string());
  words.insert(words.end(), {"--out", "page.html"});
  return shell_command(words);
}

}  // namespace

std::vector<Study> gather(const std::vector<fs::path>& places) {
  std::vector<Study> studies;
  std::vector<fs::path> runs;
  for (const fs::path& place : places) {
    if (is_run(place)) {
      runs.push_back(place);
      continue;
    }
    studies.push_back(study_of(place));
    studies.back().again = page_command({place});
  }
  if (runs.empty()) return studies;
  studies.push_back(runs_study(runs));
  studies.back().again = page_command(runs);
  return studies;
}

}  // namespace fem
