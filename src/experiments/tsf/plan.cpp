#include "experiments/tsf/plan.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "evaluate/forecasts.h"
#include "io/recipe.h"
#include "tasks/forecast/data.h"
#include "tasks/forecast/task.h"
#include "train/options.h"
#include "util/check.h"
#include "util/grouped.h"
#include "util/nearest.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

using nlohmann::json;

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

std::filesystem::path tsf_file(const TsfPlan& plan, const std::string& name) {
  for (const char* end : {".csv", ".csv.gz"})
    if (const auto path = plan.data / (name + end); std::filesystem::exists(path))
      return std::filesystem::absolute(path);
  FEM_CHECK(false, "tsf: expected ", (plan.data / (name + ".csv")).string(),
            " or .csv.gz; fetch it with scripts/get_data ", name, ", or name its folder with --data");
}

json data_of(const TsfPlan& plan, const TsfColumn& column, int64_t input) {
  return {{"csv", tsf_file(plan, column.table.name).string()},
          {"as_is", true},
          {"horizon", column.horizon},
          {"input", input},
          {"train_rows", column.table.split.train},
          {"validation_rows", column.table.split.validation},
          {"test_rows", column.table.split.test}};
}

// Of the preset, for windows of so many rows.
json training_of(const TsfPlan& plan, const TsfColumn& column, int64_t input) {
  constexpr int64_t kBatch = 32;
  const int64_t windows = column.table.split.train - input - column.horizon + 1;
  const int64_t epoch = (windows + kBatch - 1) / kBatch;
  if (plan.preset == "smoke") return {{"steps", 2}, {"warmup_steps", 1}, {"validate_every", 1}, {"patience", 0}};
  if (plan.preset == "mini")
    return {{"steps", 800}, {"warmup_steps", 40}, {"validate_every", 100}, {"checkpoint_every", 100}, {"patience", 4}};
  return {{"steps", 100 * epoch},
          {"warmup_steps", 5 * epoch},
          {"validate_every", epoch},
          {"checkpoint_every", epoch},
          {"patience", 12}};
}

json body_changes(const std::string& body) {
  if (body == "dlinear")
    return {{"model", {{"body", body}}},
            {"train", {{"learning_rate", 1e-3}, {"weight_decay", 0.0}, {"clip", 0.0}, {"beta2", 0.999}}}};
  FEM_CHECK(body == "patches" || body == "inverted", "tsf: expected bodies dlinear, patches or inverted, got '", body,
            "'");
  return {{"model", {{"body", body}, {"block_mixer", "attention"}, {"mixer", {{"causal", false}}}}},
          {"train", {{"learning_rate", body == "patches" ? 1e-4 : 5e-4}}}};
}

double ridge_mse(const TsfPlan& plan, const std::string& label) {
  const TsfColumn column = tsf_column(label);
  json recipe = load_recipe(find_recipe("forecast/fem-softmax"));
  recipe["data"] = data_of(plan, column, tsf_input(column.horizon));
  const ForecastOptions options = forecast_options_from_json(recipe);
  const Series series = series_of(options.data);
  const ForecasterOptions model = forecaster_for(options, series);
  const ForecastData data = forecast_data(model, options.data, series);
  const at::Tensor targets = target_places(model);
  return score_forecasts(data.windows, targets, fit_ridge(data.windows, targets), {}).mse();
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

int64_t tsf_input(int64_t horizon) { return horizon <= 96 ? 1024 : horizon <= 336 ? 2048 : 4096; }

TsfPlan tsf_preset(const std::string& name) {
  const auto with_horizons = [](const std::vector<std::string>& tables) {
    std::vector<std::string> columns;
    for (const std::string& table : tables)
      for (const char* horizon : {"96", "192", "336", "720"}) columns.push_back(table + " " + horizon);
    return columns;
  };
  const std::vector<MixerRow> few{{"attention", ""}, {"softmax", "CLTG"}, {"gla", "CLTG"}, {"rnn_softmax", "CLTG"}};
  if (name == "smoke")
    return {.preset = name,
            .mixers = {few[0], few[1]},
            .bodies = {"dlinear", "inverted"},
            .columns = {"ETTh1 96"},
            .seeds = {1}};
  if (name == "mini") {
    TsfPlan plan{.preset = name, .mixers = few, .bodies = {"dlinear"}, .columns = with_horizons({"ETTh1", "ETTh2"})};
    plan.columns.insert(plan.columns.end(), {"ETTm1 96", "ETTm1 192"});
    plan.seeds = {1, 2, 3};
    return plan;
  }
  FEM_CHECK(name == "paper", "tsf: expected --preset smoke, mini or paper, got '", name, "'");
  TsfPlan plan{.preset = name,
               .mixers = {{"attention", ""}},
               .bodies = {"dlinear", "patches", "inverted"},
               .columns = with_horizons({"ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather"}),
               .seeds = {1, 2, 3}};
  for (const char* prior : {"softmax", "gla", "rnn_softmax", "mamba"})
    for (const char* letters : {"", "CLTG"}) plan.mixers.push_back({prior, letters});
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
  constexpr int64_t kDlinearInput = 336;
  const std::string name = "forecast/fem-softmax";
  const auto file = find_recipe(name);
  const json recipe = load_recipe(file);
  Grid grid{.axes = {"model", "table"}, .seeds = plan.seeds, .choices = {{}}};
  for (const std::string& label : plan.columns) {
    const TsfColumn column = tsf_column(label);
    const auto changes_for = [&](int64_t input) {
      const int64_t width = column.table.columns < 9 ? 64 : 128;  // 32 floor(sqrt(columns))
      json changes{{"data", data_of(plan, column, input)},
                   {"model", {{"n_embd", width}, {"mlp_width", 4 * width}}},
                   {"train", training_of(plan, column, input)}};
      if (plan.preset == "mini") changes["data"]["validation_windows"] = 500;
      if (plan.preset == "smoke") changes["data"].update({{"validation_rows", 200}, {"test_rows", 200}});
      return changes;
    };
    for (const MixerRow& mixer : plan.mixers) {
      json changes = changes_for(tsf_input(column.horizon)), own = recipe;
      own.merge_patch(changes);
      changes.merge_patch(changes_of(mixer, own));
      if (mixer.name == "attention") changes["model"]["mixer"]["use_rope"] = false;  // positions are learned
      grid.cells.push_back({{mixer.label(), label}, name, file, recipe, changes});
    }
    for (const std::string& body : plan.bodies) {
      json changes = changes_for(body == "dlinear" ? kDlinearInput : tsf_input(column.horizon));
      changes.merge_patch(body_changes(body));
      grid.cells.push_back({{body, label}, name, file, recipe, changes});
    }
  }
  check(grid, "tsf");
  return grid;
}

std::string tsf_cost(const Grid& grid) {
  int64_t runs = 0, steps = 0;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    runs += static_cast<int64_t>(grid.seeds.size());
    steps += static_cast<int64_t>(grid.seeds.size()) * run_of(grid, cell, 0, grid.seeds[0]).steps();
  }
  return grouped(runs) + " runs, at most " + grouped(steps) + " steps of 32 windows";
}

std::string tsf_table(const TsfPlan& plan, const Grid& grid, const std::vector<SweepRow>& rows) {
  std::map<std::string, std::map<std::string, double>> found;  // model, column
  std::vector<std::string> models{"ridge"};
  for (const SweepRow& row : rows) {
    if (std::count(models.begin(), models.end(), row.labels[0]) == 0) models.push_back(row.labels[0]);
    const auto mse = std::find_if(row.measures.begin(), row.measures.end(),
                                  [](const auto& measure) { return measure.first == "test_mse"; });
    if (mse != row.measures.end() && mse->second.count == grid.seeds.size())
      found[row.labels[0]][row.labels[1]] = mse->second.mean;
  }
  {
    Progress progress("ridge", static_cast<int64_t>(plan.columns.size()), "tables");
    int64_t done = 0;
    for (const std::string& label : plan.columns) {
      found["ridge"][label] = ridge_mse(plan, label);
      progress.update(++done);
    }
  }
  std::vector<std::string> header{"model"};
  header.insert(header.end(), plan.columns.begin(), plan.columns.end());
  header.emplace_back("mean");
  Table table(header);
  for (const std::string& model : models) {
    std::vector<std::string> line{model};
    std::vector<double> all;
    for (const std::string& label : plan.columns) {
      const auto figure = found[model].find(label);
      line.push_back(figure == found[model].end() ? "-" : fixed(figure->second, 3));
      if (figure != found[model].end()) all.push_back(figure->second);
    }
    line.push_back(all.size() == plan.columns.size() ? fixed(summarize(all).mean, 3) : "-");
    table.add(line);
  }
  return table.str();
}

}  // namespace fem
