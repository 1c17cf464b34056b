#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "help.h"
#include "io/recipe.h"
#include "parallel/process_group.h"
#include "tasks/table.h"
#include "train/checkpoint.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/shell.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  std::string recipe, tokenizer, out, init_from;
  std::vector<std::string> data, validation, changes;
  std::optional<int64_t> resume_from;
  bool resume = false, parameters = false, plain = false;

  bool resumes() const { return resume || resume_from; }
};

// A run that goes on needs no more than its folder, under either name.
TrainArguments completed(TrainArguments arguments) {
  const bool is_run = fs::is_directory(arguments.recipe);
  if (arguments.resumes() && arguments.recipe.empty()) arguments.recipe = arguments.out;
  if (arguments.resumes() && arguments.out.empty() && is_run) arguments.out = arguments.recipe;
  if (arguments.recipe.empty()) throw CLI::RequiredError("RECIPE, or --resume with the folder of a run,");
  FEM_CHECK(!is_run || !arguments.out.empty() || arguments.parameters, "train: ", arguments.recipe,
            " is a folder; add --resume to go on with its run, or --out to train its recipe anew");
  if (arguments.out.empty()) arguments.out = fs::path("runs") / fs::path(arguments.recipe).stem();
  return arguments;
}

nlohmann::json recipe_at(const std::string& place) {
  if (!fs::is_directory(place)) return load_recipe(find_recipe(place));
  nlohmann::json recipe = recipe_of_run(place);
  FEM_CHECK(!recipe.is_null(), "train: expected the folder of a run, but ", config_path(place).string(),
            " is not there or not a run's; name the recipe");
  return recipe;
}

Recipe recipe_of(const TrainArguments& arguments) {
  nlohmann::json recipe = recipe_at(arguments.recipe);
  if (!arguments.data.empty()) recipe["data"]["train"] = arguments.data;
  if (!arguments.validation.empty()) recipe["data"]["validation"] = arguments.validation;
  if (!arguments.tokenizer.empty()) recipe["data"]["tokenizer"] = arguments.tokenizer;
  FEM_CHECK(arguments.init_from.empty() || arguments.tokenizer.empty(),
            "train: --init-from brings the tokenizer of its model; leave --tokenizer out");
  if (!arguments.init_from.empty()) recipe["train"]["init_from"] = fs::absolute(arguments.init_from).string();
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

void run(const TrainArguments& given) {
  const TrainArguments arguments = completed(given);
  const Recipe recipe = recipe_of(arguments);
  if (arguments.parameters) return print_parameters(recipe);
  const fs::path out = arguments.out;
  const TrainResult result =
      train([&](const fs::path& start) { return recipe.make(start); }, recipe.train,
            {.out = out, .resume = arguments.resumes(), .resume_from = arguments.resume_from}, std::cout);
  if (parallel_environment().rank != 0) return;
  if (!result.finished) {
    std::cout << "Stopped after step " << grouped(result.step) << ", which is saved. Go on with: fem train "
              << shell_word(out.string()) << " --resume\n";
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
      "on bit by bit as if it had not stopped, with the recipe and the data of the run; what is given again must be "
      "the same, but train.steps may grow. Several processes train together under torchrun, Slurm or MPI.\n"
      "\n"
      "Examples:\n"
      "  fem train 1m-fem-softmax --data book.txt --out runs/book\n"
      "  fem train 1m-fem-gla --data 'src/**/*.py' --tokenizer sentencepiece:4000\n"
      "  fem train runs/book --resume\n"
      "  fem train runs/book --resume --set train.steps=5000\n"
      "  fem train 1m-fem-softmax --init-from runs/book --data letters.txt\n"
      "  torchrun --standalone --nproc-per-node 2 --no-python \\\n"
      "    fem train 10m-fem-softmax --data texts/ --set train.steps=5000\n"
      "  fem train 1.3b-fem-softmax --parameters\n"
      "  fem train argmax/demo --set model.mixer=mean");
  auto arguments = std::make_shared<TrainArguments>();
  command
      ->add_option("recipe", arguments->recipe,
                   "A .toml file, a name in configs (1m-fem-softmax, argmax/demo) or the folder of a run")
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
  command->add_flag("--resume", arguments->resume, "Go on from the newest checkpoint of the run, if there is one");
  command
      ->add_option("--resume-from", arguments->resume_from,
                   "Go on from the checkpoint of this step; later ones are set aside")
      ->type_name("STEP");
  command
      ->add_option("--init-from", arguments->init_from,
                   "A run or model folder: begin with its parameters and its tokenizer")
      ->type_name("DIR");
  command->add_flag("--plain", arguments->plain, "No picture and no sample at the end");
  command->add_flag("--parameters", arguments->parameters, "Only count the parameters of the recipe");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace fem
