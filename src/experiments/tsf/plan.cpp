#include "experiments/tsf/plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "io/recipe.h"
#include "tasks/forecast/data.h"
#include "train/options.h"
#include "util/check.h"
#include "util/grouped.h"
#include "util/nearest.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kRidge = "ridge";

constexpr int64_t kBatch = 32, kValidations = 8;  // published; of a run whose length is not

// How a preset differs from what was published.
struct TsfPreset {
  std::string name;
  bool epochs = false;        // as many as published, until patience ends; otherwise steps
  int64_t steps = 0;          // 0: each body its own
  bool short_rates = false;   // to choose from, those for short runs
  int64_t test_windows = 0;   // of tables with rows every quarter of an hour, as many as hourly ones have; 0: all
  int64_t rows_held_out = 0;  // for validation and for the test each; 0: as published
  int64_t batch = kBatch;     // from here on: of bodies that are not light
  int64_t validations = kValidations;
  int64_t validation_windows = 0;  // 0: all
  std::string mark = {};           // in their labels
};

const TsfPreset& preset_of(const std::string& name) {
  static const std::vector<TsfPreset> presets{{.name = "smoke", .steps = 2, .short_rates = true, .rows_held_out = 200},
                                              {.name = "mini",
                                               .short_rates = true,
                                               .test_windows = 2800,
                                               .batch = 4,
                                               .validations = 4,
                                               .validation_windows = 250},
                                              {.name = "medium", .mark = ", batch 32"},
                                              {.name = "paper", .epochs = true}};
  for (const TsfPreset& preset : presets)
    if (preset.name == name) return preset;
  FEM_CHECK(false, "tsf: expected --preset smoke, mini, medium or paper, got '", name, "'");
}

// A table and a horizon, of "ETTh1 96".
struct TsfColumn {
  const TsfTable& table;
  int64_t horizon;
};

TsfColumn tsf_column(const std::string& label) {
  const size_t space = label.find(' ');
  const std::string name = label.substr(0, space), rest = space == std::string::npos ? "" : label.substr(space + 1);
  std::vector<std::string> known;
  int64_t horizon = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), horizon);
  for (const TsfTable& table : tsf_tables()) {
    known.push_back(table.name);
    if (table.name == name && error == std::errc() && end == rest.data() + rest.size() && horizon >= 1)
      return {table, horizon};
  }
  FEM_CHECK(false, "tsf: expected tables and horizons such as 'ETTh1 96', got '", label, "'",
            did_you_mean(name, known));
}

// Where a table lies; nothing of a plan whose runs are only read.
json tsf_places(const TsfPlan& plan, const std::string& name) {
  if (plan.data.empty()) return json::object();
  for (const char* end : {".csv", ".csv.gz"})
    if (const auto path = plan.data / (name + end); std::filesystem::exists(path))
      return {{"data", {{"csv", std::filesystem::absolute(path).string()}}}};
  FEM_CHECK(false, "tsf: expected ", (plan.data / (name + ".csv")).string(),
            " or .csv.gz; fetch it with scripts/get_data ", name, ", or name its folder with --data");
}

json data_of(const TsfPreset& preset, const TsfColumn& column, int64_t input) {
  const int64_t held_out = preset.rows_held_out;
  json data{{"csv", column.table.name + ".csv"},
            {"as_is", true},
            {"horizon", column.horizon},
            {"input", input},
            {"train_rows", column.table.split.train},
            {"validation_rows", held_out > 0 ? held_out : column.table.split.validation},
            {"test_rows", held_out > 0 ? held_out : column.table.split.test}};
  if (preset.test_windows > 0 && column.table.split.test > 4000) data["test_windows"] = preset.test_windows;
  return data;
}

// What a kind of model has of its own; the body of the mixers is segments.
struct TsfBody {
  json changes;
  int64_t input;                    // rows; 0: that of the horizon
  std::vector<double> rates;        // published
  int64_t epochs, patience;         // published
  int64_t short_steps;              // of a run that is not as long as published
  std::vector<double> short_rates;  // to choose from: such a run wants higher ones
  bool light;                       // a step costs little: no preset need make it smaller
};

TsfBody body_of(const std::string& name) {
  constexpr int64_t kOwnInput = 336;  // published for DLinear and PatchTST; longer ones drown iTransformer
  if (name == "segments") return {json::object(), 0, {6e-4}, 100, 12, 400, {1e-3, 3e-3}, false};
  if (name == "dlinear") {
    const json changes{{"model", {{"body", name}}},
                       {"train", {{"weight_decay", 0.0}, {"clip", 0.0}, {"beta2", 0.999}}}};
    return {changes, kOwnInput, {5e-3, 5e-2}, 10, 3, 2000, {5e-3, 5e-2}, true};
  }
  const json encoder{{"model", {{"body", name}, {"block_mixer", "attention"}, {"mixer", {{"causal", false}}}}}};
  if (name == "patches") return {encoder, kOwnInput, {1e-4}, 100, 12, 400, {1e-3, 3e-3}, false};
  FEM_CHECK(name == "inverted", "tsf: expected bodies ridge, dlinear, patches or inverted, got '", name, "'");
  return {encoder, kOwnInput, {5e-4}, 10, 3, 400, {3e-4, 1e-3}, true};
}

int64_t width_for(int64_t columns) {
  ForecasterOptions model;
  model.columns.resize(static_cast<size_t>(columns));
  return with_widths(model).n_embd;
}

// For windows of so many rows.
json training_of(const TsfPreset& preset, const TsfColumn& column, int64_t input, const TsfBody& body) {
  const int64_t batch = body.light ? kBatch : preset.batch;
  int64_t steps = preset.steps > 0 ? preset.steps : body.short_steps, patience = 0;
  int64_t every = std::max<int64_t>(steps / (body.light ? kValidations : preset.validations), 1);
  if (preset.epochs) {
    const int64_t windows = column.table.split.train - input - column.horizon + 1;
    every = (windows + batch - 1) / batch;
    steps = body.epochs * every;
    patience = body.patience;
  }
  return {{"steps", steps},
          {"batch", batch},
          {"warmup_steps", std::max<int64_t>(steps / 20, 1)},
          {"validate_every", every},
          {"checkpoint_every", every},
          {"patience", patience}};
}

}  // namespace

const std::vector<TsfTable>& tsf_tables() {
  static const std::vector<TsfTable> tables{{"ETTh1", 7, {8640, 2880, 2880}},
                                            {"ETTh2", 7, {8640, 2880, 2880}},
                                            {"ETTm1", 7, {34560, 11520, 11520}},
                                            {"ETTm2", 7, {34560, 11520, 11520}},
                                            {"weather", 21, {36887, 5270, 10539}}};
  return tables;
}

TsfPlan tsf_preset(const std::string& name) {
  const auto with_horizons = [](const std::vector<std::string>& tables) {
    std::vector<std::string> columns;
    for (const std::string& table : tables)
      for (const char* horizon : {"96", "192", "336", "720"}) columns.push_back(table + " " + horizon);
    return columns;
  };
  if (name == "smoke")
    return {.preset = name,
            .mixers = {{"softmax", ""}, {"softmax", "CLTG"}},
            .bodies = {kRidge, "dlinear", "inverted"},
            .columns = {"ETTh1 96", "ETTh1 192"},
            .seeds = {1}};
  TsfPlan plan{.preset = preset_of(name).name,
               .mixers = mixer_rows({"softmax", "gla", "rnn_softmax", "mamba"}, {"none", "CLTG"}),
               .bodies = {kRidge, "dlinear", "patches", "inverted"},
               .columns = with_horizons({"ETTh1", "ETTh2"}),
               .seeds = {1, 2, 3}};
  if (name == "medium") return plan;
  const std::vector<std::string> more =
      name == "mini" ? std::vector<std::string>{"ETTm1 96", "ETTm1 192"} : with_horizons({"ETTm1", "ETTm2", "weather"});
  plan.columns.insert(plan.columns.end(), more.begin(), more.end());
  return plan;
}

std::vector<TsfPlan> by_table(const TsfPlan& plan) {
  std::vector<TsfPlan> parts;
  for (const std::string& label : plan.columns) {
    const std::string& table = tsf_column(label).table.name;
    const auto known =
        std::find_if(parts.begin(), parts.end(), [&](const TsfPlan& part) { return part.table() == table; });
    if (known != parts.end()) {
      known->columns.push_back(label);
      continue;
    }
    parts.push_back(plan);
    parts.back().columns = {label};
  }
  return parts;
}

Grid grid_of(const TsfPlan& plan) {
  FEM_CHECK(!(plan.mixers.empty() && plan.bodies.empty()) && !plan.columns.empty() && !plan.seeds.empty(),
            "tsf: expected at least one model, table and seed");
  const std::string name = "forecast/fem-softmax";
  const auto file = find_recipe(name);
  const json recipe = load_recipe(file);
  const TsfPreset& preset = preset_of(plan.preset);
  Grid grid{.axes = {"model", "table"},
            .cells = {},
            .seeds = plan.seeds,
            .choices = {{}},
            .choosing_seeds = {plan.choosing_seed}};
  std::map<std::tuple<std::string, std::string, bool>, size_t> choosers;  // of a model, a table and long horizons
  for (const std::string& label : plan.columns) {
    const TsfColumn column = tsf_column(label);
    const auto add = [&](std::string model, const std::string& body_name, const MixerRow* mixer) {
      const TsfBody body = body_of(body_name);
      if (!body.light) model += preset.mark;
      if (plan.input > 0 && body.input == 0) model += ", input " + std::to_string(plan.input);
      const int64_t input = body.input > 0 ? body.input : plan.input > 0 ? plan.input : published_input(column.horizon);
      const int64_t width = width_for(column.table.columns);
      json changes{{"data", data_of(preset, column, input)},
                   {"model", {{"n_embd", width}, {"mlp_width", 4 * width}}},
                   {"train", training_of(preset, column, input, body)}};
      changes.merge_patch(body.changes);
      if (preset.validation_windows > 0 && !body.light)
        changes["data"]["validation_windows"] = preset.validation_windows;
      if (mixer) {
        json own = recipe;
        own.merge_patch(changes);
        changes.merge_patch(changes_of(*mixer, own));
        if (mixer->name == "attention") changes["model"]["mixer"]["use_rope"] = false;  // positions are learned
      }
      const size_t cell = grid.cells.size(),
                   chooser = choosers.try_emplace({model, column.table.name, column.horizon > 192}, cell).first->second;
      grid.cells.push_back(
          {.labels = {model, label},
           .recipe_name = name,
           .recipe_file = file,
           .recipe = recipe,
           .changes = changes,
           .places = tsf_places(plan, column.table.name),
           .choices = choices_of({{"train", {{"learning_rate", preset.short_rates ? body.short_rates : body.rates}}}}),
           .chosen_at = chooser});
    };
    for (const MixerRow& mixer : plan.mixers) add(mixer.label(), "segments", &mixer);
    for (const std::string& body : plan.bodies)
      if (body != kRidge) add(body, body, nullptr);
  }
  check(grid, "tsf");
  return grid;
}

std::string tsf_cost(const Grid& grid) {
  int64_t runs = 0, steps = 0;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const int64_t own = runs_at(grid, cell);
    runs += own;
    steps += own * run_of(grid, cell, 0, grid.seeds[0]).steps();
  }
  return grouped(runs) + " runs, at most " + grouped(steps) + " steps";
}

Grid ridge_grid_of(const TsfPlan& plan) {
  Grid grid{.axes = {"model", "table"}, .cells = {}, .seeds = {1}, .choices = {{}}, .choosing_seeds = {}, .seeded = {}};
  if (std::count(plan.bodies.begin(), plan.bodies.end(), kRidge) == 0) return grid;
  for (const std::string& label : plan.columns) {
    const TsfColumn column = tsf_column(label);
    grid.cells.push_back(
        {.labels = {kRidge, label},
         .recipe_name = "forecast/ridge",
         .recipe = {{"task", "forecast"},
                    {"data", data_of(preset_of(plan.preset), column, published_input(column.horizon))}},
         .places = tsf_places(plan, column.table.name)});
  }
  return grid;
}

}  // namespace fem
