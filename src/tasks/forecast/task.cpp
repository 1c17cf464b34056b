#include "tasks/forecast/task.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "data/order.h"
#include "evaluate/forecasts.h"
#include "fem/io/model_folder.h"
#include "fem/language_model.h"
#include "io/forecaster_config.h"
#include "io/language_model_config.h"
#include "io/options_json.h"
#include "models/forecaster.h"
#include "tasks/forecast/data.h"
#include "tasks/trained_model.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Forecaster new_forecaster(const ForecasterOptions& options, int64_t seed) {
  at::manual_seed(seed);
  return Forecaster(options);
}

json model_section(const ForecasterOptions& options) {
  json out = to_json(static_cast<const BackboneOptions&>(options));
  write_option(out["body"], options.body);
  return out;
}

class ForecastTask final : public Task {
 public:
  ForecastTask(const ForecastOptions& options, Series series, const TrainOptions& train)
      : options_(options),
        model_(new_forecaster(forecaster_for(options, series), train.seed)),
        data_(forecast_data(model_->options, options.data, std::move(series))),
        targets_(target_places(model_->options)),
        order_(data_.windows.count(SeriesPart::kTrain), train.seed) {}

  std::vector<TrainedParameter> parameters() override {
    const std::vector<ParameterSpec> specs = forecaster_parameters(model_->options);
    const auto named = model_->named_parameters();
    std::vector<TrainedParameter> parameters;
    for (const ParameterSpec& spec : specs) parameters.push_back({spec.name, named[spec.name], spec.decays});
    return parameters;
  }

  // Every window weighs as much as any other.
  Weighted loss(const Rows& rows) override {
    model_->train();
    const Windows::Rows batch = train_rows(rows);
    return {model_->loss(batch.past, batch.future).sum(), static_cast<double>(rows.count)};
  }

  std::vector<NamedTensor> trace(const Rows& rows) override { return model_->trace(train_rows(rows).past); }

  // At the end the test is measured as well; nothing is chosen by it.
  NamedValues validation_sums(const ValidationPart& part) override {
    NamedValues sums;
    model_->eval();
    ScoreOptions own{.part = SeriesPart::kValidation,
                     .windows = options_.data.validation_windows,
                     .batch = part.batch_rows,
                     .share = part.part,
                     .shares = part.parts};
    ScoreOptions test = own;
    test.part = SeriesPart::kTest;
    test.windows = options_.data.test_windows;
    const int64_t first = scored_windows(data_.windows, own);
    const int64_t all = first + (part.whole ? scored_windows(data_.windows, test) : 0);
    const auto after = [&](int64_t before) {
      return [&, before](int64_t done, int64_t) {
        if (part.on_batch) part.on_batch(before + done, all);
      };
    };
    own.on_batch = after(0);
    test.on_batch = after(first);
    add_sums(sums, "", own);
    if (part.whole) add_sums(sums, "test_", test);
    return sums;
  }

  NamedValues measures(const NamedValues& sums) const override {
    NamedValues found{{"loss", value_of(sums, "squared") / value_of(sums, "count")},
                      {"mae", value_of(sums, "absolute") / value_of(sums, "count")}};
    if (sums.size() > 3) {
      found.emplace_back("test_mse", value_of(sums, "test_squared") / value_of(sums, "test_count"));
      found.emplace_back("test_mae", value_of(sums, "test_absolute") / value_of(sums, "test_count"));
    }
    return found;
  }

  Goal goal() const override { return {"loss", /*larger_is_better=*/false}; }

  json recipe() const override {
    ForecastOptions found = options_;
    found.model = model_->options;
    found.data.csv = fs::absolute(found.data.csv).lexically_normal();
    found.data.input = model_->options.input;
    return to_json(found);
  }

  // What lies in the file counts, not where it lies.
  json identity() const override {
    json out = recipe();
    out["data"].erase("csv");
    out["files"] = {
        {"training", {{{"name", options_.data.csv.filename().string()}, {"checksum", data_.series.checksum}}}}};
    return out;
  }

  json identity_defaults() const override { return to_json(ForecastOptions()); }

  void save(const fs::path& folder) const override { save_forecaster(folder, model_); }

  void load(const fs::path& folder) override {
    const Forecaster saved = load_forecaster(folder);
    take_parameters(*model_, to_json(model_->options), *saved, to_json(saved->options), "forecast", folder);
  }

  std::pair<std::string, int64_t> units_of_a_row() const override { return {"windows", 1}; }

  std::string description() const override {
    const auto count = [&](SeriesPart part) { return grouped(data_.windows.count(part)); };
    const ForecasterOptions& o = model_->options;
    return std::to_string(o.targets.size()) + " of " + std::to_string(o.columns.size()) + " columns, " +
           grouped(o.input) + " rows to " + grouped(o.horizon) + ", " + count(SeriesPart::kTrain) + " training, " +
           count(SeriesPart::kValidation) + " validation and " + count(SeriesPart::kTest) + " test windows";
  }

 private:
  Windows::Rows train_rows(const Rows& rows) const {
    const at::Tensor numbers = at::empty({rows.count}, at::kLong);
    for (int64_t i = 0; i < rows.count; ++i)
      numbers.data_ptr<int64_t>()[i] = order_.of(rows.first + i * rows.stride).item;
    return data_.windows.at(SeriesPart::kTrain, numbers);
  }

  void add_sums(NamedValues& sums, const std::string& prefix, const ScoreOptions& of) {
    const ForecastScore score = score_forecasts(
        data_.windows, targets_, [this](const at::Tensor& windows) { return model_->forward(windows); }, of);
    sums.emplace_back(prefix + "squared", score.squared.sum().item<double>());
    sums.emplace_back(prefix + "absolute", score.absolute.sum().item<double>());
    sums.emplace_back(prefix + "count", static_cast<double>(score.windows * score.squared.numel()));
  }

  const ForecastOptions options_;
  Forecaster model_;
  const ForecastData data_;
  const at::Tensor targets_;
  const EpochOrder order_;
};

}  // namespace

ForecastOptions forecast_options_from_json(const json& recipe) {
  ForecastOptions options;
  const json data = recipe.value("data", json::object());
  OptionsReader of_data("data", data);
  visit_forecast_data(options.data, of_data);
  of_data.finish();
  const json model = recipe.value("model", json::object());
  options.model = forecaster_options_from_json(model);
  for (const char* name : {"horizon", "input", "columns", "targets", "mean", "deviation"})
    FEM_CHECK(!model.contains(name), "forecast: model.", name, " follows from [data]; leave it out");
  return options;
}

json to_json(const ForecastOptions& options) {
  json out{{"task", "forecast"}, {"model", model_section(options.model)}};
  visit_forecast_data(
      options.data, [&](const char* name, const auto& value, const char*) { write_option(out["data"][name], value); });
  return out;
}

std::unique_ptr<Task> forecast_task(const ForecastOptions& options, Series series, const TrainOptions& train) {
  return std::make_unique<ForecastTask>(options, std::move(series), train);
}

json training_for(const ForecastOptions& options, const Series& series, int64_t batch, int64_t epochs) {
  FEM_CHECK(epochs >= 1 && batch >= 1, "forecast: expected epochs and train.batch of at least 1, got ", epochs, " and ",
            batch);
  const ForecastData data = forecast_data(forecaster_for(options, series), options.data, series);
  const int64_t windows = data.windows.count(SeriesPart::kTrain), epoch = (windows + batch - 1) / batch;
  return {{"steps", epochs * epoch},
          {"warmup_steps", std::max<int64_t>(epochs * epoch / 20, 1)},
          {"validate_every", epoch},
          {"checkpoint_every", epoch}};
}

const TaskEntry& forecast_entry() {
  static const TaskEntry entry{
      .name = "forecast",
      .summary = "say the next rows of a table of numbers from those before",
      .make =
          [](const json& recipe, const TrainOptions& train, const fs::path&) {
            const ForecastOptions options = forecast_options_from_json(recipe);
            return forecast_task(options, series_of(options.data), train);
          },
      .parameters =
          [](const json& recipe) {
            const ForecastOptions options = forecast_options_from_json(recipe);
            std::vector<ParameterSpec> mixers, others;
            for (const ParameterSpec& spec : forecaster_parameters(forecaster_for(options, series_of(options.data))))
              (spec.name.find(".mixer.") != std::string::npos ? mixers : others).push_back(spec);
            return std::vector{std::pair<std::string, int64_t>{"mixers", parameter_count(mixers)},
                               std::pair<std::string, int64_t>{"all else", parameter_count(others)}};
          },
      .settings =
          [](const SettingVisitor& visit) {
            const ForecastOptions defaults;
            visit_forecast_data(defaults.data, settings_of("data", visit));
            visit("model.body=segments", "segments (on the backbone), dlinear, patches or inverted");
            visit_backbone_options(static_cast<const BackboneOptions&>(defaults.model), settings_of("model", visit));
            visit("model.mixer.*", "as of a language model, above");
          },
  };
  return entry;
}

}  // namespace fem
