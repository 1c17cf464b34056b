#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "help.h"
#include "io/recipe.h"
#include "parallel/process_group.h"
#include "tasks/table.h"
#include "train/checkpoint.h"
#include "train/run.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  std::string recipe, tokenizer, out;
  std::vector<std::string> data, validation, changes;
  bool resume = false, parameters = false, plain = false;
};

Recipe recipe_of(const TrainArguments& arguments) {
  nlohmann::json recipe = load_recipe(find_recipe(arguments.recipe));
  if (!arguments.data.empty()) recipe["data"]["train"] = arguments.data;
  if (!arguments.validation.empty()) recipe["data"]["validation"] = arguments.validation;
  if (!arguments.tokenizer.empty()) recipe["data"]["tokenizer"] = arguments.tokenizer;
  for (const std::string& change : arguments.changes) set_value(recipe, change);
  return recipe_from_json(recipe);
}

void print_parameters(const Recipe& recipe) {
  Table table({"part", "parameters"});
  int64_t all = 0;
  for (const auto& [part, count] : recipe.task->parameters(recipe.sections)) {
    table.add({part, grouped(count)});
    all += count;
  }
  table.add({"all", grouped(all)});
  std::cout << table.str();
}

void show_measures(const TrainResult& result, const fs::path& out) {
  std::cout << "Validation: ";
  for (size_t i = 0; i < result.measures.size(); ++i) {
    std::string name = result.measures[i].first;
    std::replace(name.begin(), name.end(), '_', ' ');
    std::cout << (i ? ", " : "") << name << " " << fixed(result.measures[i].second, 4);
  }
  if (result.measured_step != result.step) std::cout << " (the best, after step " << result.measured_step << ")";
  std::cout << "\nModel: " << Checkpoints(out, 1).at(result.measured_step).string() << "\n" << std::flush;
}

void show_curve(const fs::path& out) {
  const fs::path picture = out / "loss.png";
  const PlotCommand plot = plot_command("plot_train.py", {out.string(), "--out", picture.string()});
  std::cout << (draw(plot) ? "Loss curve: " + picture.string() : plot.by_hand()) << "\n";
}

void run(const TrainArguments& arguments) {
  const Recipe recipe = recipe_of(arguments);
  if (arguments.parameters) return print_parameters(recipe);
  const fs::path out =
      arguments.out.empty() ? fs::path("runs") / fs::path(arguments.recipe).stem() : fs::path(arguments.out);
  const TrainResult result =
      train([&] { return recipe.make(); }, recipe.train, {.out = out, .resume = arguments.resume}, std::cout);
  if (parallel_environment().rank != 0) return;
  if (!result.finished) {
    std::cout << "Stopped after step " << grouped(result.step)
              << ", which is saved. Add --resume to the same command to go on.\n";
    return;
  }
  show_measures(result, out);
  if (arguments.plain) return;
  show_curve(out);
  if (recipe.task->show) recipe.task->show(out, std::cout);
}

// Every value that --set may change.
std::string settings_text() {
  std::string text;
  const SettingVisitor list = [&](const std::string& setting, const char* help) { text += help_entry(setting, help); };
  const TrainOptions defaults;
  visit_train_options(defaults, settings_of("train", list));
  for (const TaskEntry* task : all_tasks()) {
    text += "and with task = \"" + std::string(task->name) + "\" (" + task->summary + "):\n";
    task->settings(list);
  }
  return text;
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model: a language model on text files, or another task");
  command->footer(
      "What --set may change, and what it is where a recipe says nothing:\n" + settings_text() +
      "\n"
      "Writes to --out: checkpoints/step-N (a model folder each, with the optimizer), metrics.jsonl, tensorboard/, "
      "result.json, loss.png. Ctrl-C saves a checkpoint first and exits with 130 (SIGTERM: 143); --resume then goes "
      "on bit by bit as if it had not stopped. Several processes train together under torchrun, Slurm or MPI.\n"
      "\n"
      "Examples:\n"
      "  fem train 1m-fem-softmax --data book.txt --out runs/book\n"
      "  fem train 1m-fem-gla --data 'src/**/*.py' --tokenizer sentencepiece:4000\n"
      "  fem train 1m-fem-softmax --data book.txt --out runs/book --resume\n"
      "  torchrun --standalone --nproc-per-node 2 --no-python \\\n"
      "    fem train 10m-fem-softmax --data texts/ --set train.steps=5000\n"
      "  fem train 1.3b-fem-softmax --parameters\n"
      "  fem train argmax/demo --set model.mixer=mean");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("recipe", arguments->recipe, "A .toml file or a name in configs: 1m-fem-softmax, argmax/demo")
      ->required()
      ->type_name(kRecipeType);
  command->add_option("--data", arguments->data, "Files, folders or globs of UTF-8 text; .jsonl: every line's \"text\"")
      ->type_name("PATH");
  command
      ->add_option("--validation", arguments->validation, "The same for validation; default: the last tenth of --data")
      ->type_name("PATH");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, a SentencePiece .model, or sentencepiece:N to train one")
      ->type_name("NAME");
  command->add_option("--out", arguments->out, "Folder of the run; default runs/RECIPE")->type_name("DIR");
  command->add_option("--set", arguments->changes, "Change a value of the recipe, such as train.steps=500")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  command->add_flag("--resume", arguments->resume, "Go on from the newest checkpoint of --out, if there is one");
  command->add_flag("--plain", arguments->plain, "No picture and no sample at the end");
  command->add_flag("--parameters", arguments->parameters, "Only count the parameters of the recipe");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace fem
