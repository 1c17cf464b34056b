#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "io/atomic_file.h"
#include "io/recipe.h"
#include "parallel/process_group.h"
#include "tasks/forecast/report.h"
#include "tasks/forecast/task.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/progress.h"
#include "util/shell.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct ForecastArguments {
  std::string recipe = "forecast/fem-softmax", csv, time, out, model, plot, json, part = "test";
  std::vector<std::string> columns, targets, changes;
  std::optional<int64_t> horizon, input, epochs, season;
  bool resume = false, plain = false, as_is = false;
};

constexpr int64_t kEpochs = 20;

void tell_notes(const Series& series) {
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < std::min(series.notes.size(), kMost); ++i) std::cerr << "note: " << series.notes[i] << "\n";
  if (series.notes.size() > kMost) std::cerr << "note: and " << series.notes.size() - kMost << " more such notes\n";
}

std::vector<ScoredForecast> scored(TrainedForecaster& trained, const ForecastData& data, SeriesPart part) {
  std::unique_ptr<Progress> progress;
  std::string showing;
  return score_with_baselines(trained, data, part, [&](const std::string& what, int64_t done, int64_t all) {
    if (what != showing) {
      progress.reset();
      progress = std::make_unique<Progress>(what, all, "windows");
    }
    showing = what;
    progress->update(done);
  });
}

// The picture, and beside it what it was drawn from.
void draw_forecast(const fs::path& picture, const Json& document) {
  const fs::path figures = fs::path(picture).replace_extension(".json");
  write_atomically(figures, [&](std::ostream& file) { file << document.dump() << "\n"; });
  const PlotCommand plot = plot_command("plot_forecast.py", {figures.string(), "--out", picture.string()});
  std::cout << (draw(plot) ? "Picture: " + picture.string() : plot.by_hand()) << "\n";
}

// The recipe of the run to go on with, or the one that was named with what the options say.
nlohmann::json recipe_of_arguments(const ForecastArguments& arguments) {
  if (arguments.resume) {
    nlohmann::json recipe = recipe_of_run(arguments.out);
    if (!recipe.is_null()) return recipe;
  }
  nlohmann::json recipe = load_recipe(find_recipe(arguments.recipe));
  nlohmann::json& data = recipe["data"];
  FEM_CHECK(!arguments.csv.empty(), "forecast: expected a table; name it with --csv FILE");
  data["csv"] = arguments.csv;
  if (!arguments.time.empty()) data["time"] = arguments.time;
  if (!arguments.columns.empty()) data["columns"] = arguments.columns;
  if (!arguments.targets.empty()) data["targets"] = arguments.targets;
  if (arguments.horizon) data["horizon"] = *arguments.horizon;
  if (arguments.input) data["input"] = *arguments.input;
  if (arguments.season) data["season"] = *arguments.season;
  if (arguments.as_is) data["as_is"] = true;
  return recipe;
}

void show_result(const ForecastArguments& arguments, const TrainResult& result) {
  TrainedForecaster trained = load_trained_forecaster(arguments.out, {});
  Series series = series_of(trained.data);
  const at::Tensor future = forecast_end(trained, series);
  const ForecastData data = forecast_data(trained.model->options, trained.data, series);
  const std::vector<ScoredForecast> scores = scored(trained, data, SeriesPart::kTest);
  std::cout << "\nErrors on the " << grouped(data.windows.count(SeriesPart::kTest))
            << " windows that were held back (standardised):\n\n"
            << score_tables(scores, trained.model->options) << "\nModel: " << trained.folder.string() << " (step "
            << grouped(result.measured_step) << ")\n";
  const fs::path out = arguments.out, table = out / "forecast.csv";
  write_atomically(table, [&](std::ostream& file) { write_forecast(file, trained, series, future); });
  std::cout << "The next " << future.size(0) << " rows: " << table.string() << "\n";
  if (!arguments.plain) draw_forecast(out / "forecast.png", picture_document(trained, series, future, scores));
}

// Steps, warm-up and validations by passes over the windows, where nothing else was said.
Recipe recipe_for_table(nlohmann::json recipe, const Series& series, int64_t epochs) {
  nlohmann::json& given = recipe["train"];
  if (given.is_null()) given = nlohmann::json::object();
  const int64_t batch = given.value("batch", TrainOptions().batch);
  nlohmann::json training = training_for(forecast_options_from_json(recipe), series, batch, epochs);
  training.update(given);
  given = training;
  return recipe_from_json(recipe);
}

void train_forecaster(const ForecastArguments& arguments) {
  nlohmann::json recipe = recipe_of_arguments(arguments);
  for (const std::string& change : arguments.changes) set_value(recipe, change);
  FEM_CHECK(recipe.value("task", nlohmann::json()) == forecast_entry().name,
            "forecast: expected a recipe whose task is \"forecast\", got ",
            recipe.value("task", nlohmann::json()).dump());
  const ForecastOptions options = forecast_options_from_json(recipe);
  const Series series = series_of(options.data);
  tell_notes(series);
  const Recipe whole = recipe_for_table(recipe, series, arguments.epochs.value_or(kEpochs));
  const TrainResult result = train([&](const fs::path&) { return forecast_task(options, series, whole.train); },
                                   whole.train, {.out = arguments.out, .resume = arguments.resume}, std::cout);
  if (parallel_environment().rank != 0) return;
  if (!result.finished) {
    std::cout << "Stopped after step " << grouped(result.step)
              << ", which is saved. Go on with: fem forecast train --out " << shell_word(arguments.out)
              << " --resume\n";
    return;
  }
  show_result(arguments, result);
}

void predict(const ForecastArguments& arguments) {
  std::error_code none;
  for (const std::string& file : {arguments.out, arguments.plot})
    FEM_CHECK(file.empty() || !fs::exists(file, none), "forecast: ", file,
              " exists; choose another name, or remove it");
  TrainedForecaster trained = load_trained_forecaster(arguments.model, arguments.csv);
  const Series series = series_of(trained.data);
  tell_notes(series);
  const at::Tensor future = forecast_end(trained, series);
  if (arguments.out.empty()) {
    write_forecast(std::cout, trained, series, future);
  } else {
    write_atomically(arguments.out, [&](std::ostream& file) { write_forecast(file, trained, series, future); });
    std::cout << "The next " << future.size(0) << " rows: " << arguments.out << "\n";
  }
  if (!arguments.plot.empty()) draw_forecast(arguments.plot, picture_document(trained, series, future, {}));
}

void evaluate(const ForecastArguments& arguments) {
  if (!arguments.json.empty()) expect_appendable(arguments.json, "--json");
  TrainedForecaster trained = load_trained_forecaster(arguments.model, arguments.csv);
  Series series = series_of(trained.data);
  tell_notes(series);
  const ForecastData data = forecast_data(trained.model->options, trained.data, std::move(series));
  const SeriesPart part = arguments.part == "test" ? SeriesPart::kTest : SeriesPart::kValidation;
  const std::vector<ScoredForecast> scores = scored(trained, data, part);
  std::cout << trained.folder.string() << " on the " << grouped(data.windows.count(part)) << " " << arguments.part
            << " windows of " << trained.data.csv.string() << " (standardised):\n\n"
            << score_tables(scores, trained.model->options);
  if (!arguments.json.empty()) {
    Json line{{"model", trained.folder.string()}, {"csv", trained.data.csv.string()}, {"part", arguments.part}};
    line.update(score_document(scores, trained.model->options));
    append_jsonl(arguments.json, line);
  }
  if (!arguments.plot.empty())
    draw_forecast(arguments.plot, picture_document(trained, data.series, forecast_end(trained, data.series), scores));
}

void add_train(CLI::App& forecast) {
  CLI::App* app = forecast.add_subcommand("train", "Learn to say the next rows of a table");
  app->footer(
      "The first seven tenths of the rows are learned from, the next tenth decides when to stop, and the last two "
      "tenths "
      "are held back: on them the model is compared with what needs no learning (the last value, the season before) "
      "and with a linear map in closed form (ridge).\n"
      "\n"
      "Writes to --out: checkpoints/, best (a model folder), metrics.jsonl, result.json, forecast.csv, forecast.png. "
      "Ctrl-C saves a checkpoint first; --resume goes on bit by bit. What else --set may change: fem train --help\n"
      "\n"
      "Examples:\n"
      "  fem forecast train --csv table.csv --horizon 24 --out runs/table\n"
      "  fem forecast train --csv table.csv.gz --target load,price --horizon 96 --input 1024\n"
      "  fem forecast train --csv table.csv --recipe forecast/fem-gla --epochs 5\n"
      "  fem forecast train --out runs/table --resume");
  const auto arguments = std::make_shared<ForecastArguments>();
  arguments->out = "runs/forecast";
  app->add_option("--csv", arguments->csv, "A table with a header, times and numbers; .gz too")->type_name("FILE");
  app->add_option("--horizon", arguments->horizon, "Rows to forecast; default 96")->type_name("N");
  app->add_option("--input", arguments->input,
                  "Rows of the past to make a forecast of; default 1024 to 4096 by the horizon, or a fifth of a short "
                  "table")
      ->type_name("N");
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help) {
    app->add_option(name, values, help)->delimiter(',')->allow_extra_args(false)->type_name("LIST");
  };
  list("--target", arguments->targets, "Columns to forecast; default: all that are read");
  list("--columns", arguments->columns, "Columns to read; default: all that hold numbers");
  app->add_option("--time", arguments->time, "The column of times; default: the first, if it looks like one")
      ->type_name("NAME");
  app->add_option("--season", arguments->season, "Rows of a season, for the seasonal baseline; default: by the times")
      ->type_name("N");
  app->add_flag("--as-is", arguments->as_is, "Rows and values as they stand: no sentinels, times in any order");
  app->add_option("--recipe", arguments->recipe, "A .toml file or a name in configs")
      ->type_name(kRecipeType)
      ->capture_default_str();
  app->add_option("--epochs", arguments->epochs, "Most passes over the training windows; default 20")->type_name("N");
  app->add_option("--out", arguments->out, "Folder of the run")->type_name("DIR")->capture_default_str();
  app->add_option("--set", arguments->changes, "Change a value of the recipe, such as train.patience=3")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  app->add_flag("--resume", arguments->resume, "Go on from the newest checkpoint of the run, if there is one");
  app->add_flag("--plain", arguments->plain, "No picture at the end");
  app->callback([arguments] { train_forecaster(*arguments); });
}

void add_common(CLI::App& app, ForecastArguments& arguments) {
  app.add_option("model", arguments.model, "A run of fem forecast train, or a model folder")
      ->required()
      ->type_name("DIR");
  app.add_option("--csv", arguments.csv, "The table; default: the one it was trained on")->type_name("FILE");
  app.add_option("--plot", arguments.plot, "Draw a picture; its figures go beside it as .json")->type_name("PNG");
}

void add_predict(CLI::App& forecast) {
  CLI::App* app = forecast.add_subcommand("predict", "Say the rows that follow the last of a table");
  app->footer(
      "Example:\n"
      "  fem forecast predict runs/table --csv today.csv --out tomorrow.csv --plot tomorrow.png");
  const auto arguments = std::make_shared<ForecastArguments>();
  add_common(*app, *arguments);
  app->add_option("--out", arguments->out, "Where the rows go; default: the terminal")->type_name("FILE");
  app->callback([arguments] { predict(*arguments); });
}

void add_eval(CLI::App& forecast) {
  CLI::App* app = forecast.add_subcommand("eval", "Measure a model beside the baselines, on what was held back");
  app->footer(
      "Example:\n"
      "  fem forecast eval runs/table --json errors.jsonl --plot errors.png");
  const auto arguments = std::make_shared<ForecastArguments>();
  add_common(*app, *arguments);
  app->add_option("--part", arguments->part, "test or validation")
      ->check(CLI::IsMember({"test", "validation"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Append all figures, by lead time and target too, as a line of JSON")
      ->type_name("FILE");
  app->callback([arguments] { evaluate(*arguments); });
}

}  // namespace

void add_forecast_command(CLI::App& app) {
  CLI::App* forecast = app.add_subcommand("forecast", "Forecast a table of numbers over time (CSV)");
  forecast->require_subcommand(1);
  forecast->fallthrough();
  forecast->footer("Example:\n  fem forecast train --csv table.csv --horizon 24 --out runs/table");
  add_train(*forecast);
  add_predict(*forecast);
  add_eval(*forecast);
}

}  // namespace fem
