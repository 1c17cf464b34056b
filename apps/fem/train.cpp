#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "fem/generate.h"
#include "fem/io/model_folder.h"
#include "fem/text/streamed_text.h"
#include "fem/text/text_model.h"
#include "io/recipe.h"
#include "parallel/process_group.h"
#include "train/run.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/shared_files.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  std::string recipe, tokenizer, out;
  std::vector<std::string> data, validation, changes;
  bool resume = false, parameters = false;
};

// A file, or the name of one in configs/lm.
fs::path recipe_path(const std::string& recipe) {
  if (recipe.ends_with(".toml")) return recipe;
  const fs::path folder = shared_files() / "configs" / "lm", path = folder / (recipe + ".toml");
  std::string known;
  if (fs::is_directory(folder) && !fs::exists(path)) {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".toml") names.insert(entry.path().stem().string());
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  }
  FEM_CHECK(fs::exists(path), "train: expected a recipe, a .toml file or one of ", known, "; got '", recipe, "'");
  return path;
}

TrainConfig config_of(const TrainArguments& arguments) {
  nlohmann::json recipe = load_recipe(recipe_path(arguments.recipe));
  if (!arguments.data.empty()) recipe["data"]["train"] = arguments.data;
  if (!arguments.validation.empty()) recipe["data"]["validation"] = arguments.validation;
  if (!arguments.tokenizer.empty()) recipe["data"]["tokenizer"] = arguments.tokenizer;
  for (const std::string& change : arguments.changes) set_value(recipe, change);
  return train_config_from_json(recipe);
}

// Where the parameters are, for any size: nothing is allocated.
void print_parameters(const TrainConfig& config) {
  LanguageModelOptions model = config.model;
  FEM_CHECK(model.vocab_size > 0 || config.data.tokenizer == "bytes",
            "train: --parameters needs the vocabulary; add --set model.vocab_size=N");
  if (model.vocab_size == 0) model.vocab_size = byte_tokenizer()->vocab_size();
  const std::vector<ParameterSpec> parameters = language_model_parameters(model);
  const auto sum_of = [&](const std::string& part) {
    std::vector<ParameterSpec> own;
    for (const ParameterSpec& spec : parameters)
      if (spec.name.find(part) != std::string::npos) own.push_back(spec);
    return parameter_count(own);
  };
  Table table({"part", "parameters"});
  const int64_t all = parameter_count(parameters), mixers = sum_of(".mixer."), mlps = sum_of(".mlp.");
  const int64_t tokens = sum_of("embedding.") + sum_of("head.");
  table.add({model.tie_embeddings ? "embedding (and head)" : "embedding and head", grouped(tokens)});
  table.add({"mixers", grouped(mixers)});
  table.add({"MLPs", grouped(mlps)});
  table.add({"norms", grouped(all - tokens - mixers - mlps)});
  table.add({"all", grouped(all)});
  std::cout << table.str();
}

void show(const TrainResult& result, const fs::path& out) {
  std::cout << "Validation: " << fixed(result.validation.loss(), 4) << " nats a token, perplexity "
            << fixed(result.validation.perplexity(), 2) << ", " << fixed(result.validation.bits_per_byte(), 4)
            << " bits per byte\n"
            << "Model: " << model_folder(out).string() << "\n"
            << std::flush;
  const PlotCommand plot = plot_command("plot_train.py");
  const fs::path picture = out / "loss.png";
  if (draw(plot, {out.string(), "--out", picture.string()}))
    std::cout << "Loss curve: " << picture.string() << "\n";
  else
    std::cout << "No picture was drawn; with a Python that has matplotlib: python " << plot.script.string() << " "
              << out.string() << " --out " << picture.string() << "\n";
}

void show_sample(const fs::path& run) {
  TextModel trained = load_text_model(run);
  const int64_t start = trained.tokenizer->separator();
  StreamedText text(trained.tokenizer, start, {});
  const GenerateOptions options{.max_tokens = 200, .temperature = 0.8, .end = start};
  std::cout << "A sample:\n";
  generate(trained.model, {{start}}, options, [&](size_t, int64_t token) {
    std::cout << text.add(token) << std::flush;
    return true;
  });
  std::cout << text.finish() << "\n\nMore: fem generate " << run.string() << " --prompt \"...\"\n";
}

void run(const TrainArguments& arguments) {
  const TrainConfig config = config_of(arguments);
  if (arguments.parameters) return print_parameters(config);
  FEM_CHECK(!config.data.train.empty(), "train: expected --data with files, folders or globs of text, got none");
  const fs::path out =
      arguments.out.empty() ? fs::path("runs") / fs::path(arguments.recipe).stem() : fs::path(arguments.out);
  const TrainResult result = train(config, out, arguments.resume, std::cout);
  if (parallel_environment().rank != 0) return;
  if (!result.finished) {
    std::cout << "Stopped after step " << grouped(result.step)
              << ", which is saved. Add --resume to the same command to go on.\n";
    return;
  }
  show(result, out);
  show_sample(out);
}

// "  train.steps  updates of the parameters (default 1000)" for every value that --set may change.
std::string settings_text() {
  std::string text;
  const auto section = [&](const std::string& prefix) {
    return [&text, prefix](const char* name, const auto&, const char* help) {
      std::string key = "  " + prefix + name;
      if (key.size() < 28) key.resize(28, ' ');
      text += key + "  " + help + "\n";
    };
  };
  const TrainConfig defaults;
  visit_train_options(defaults.train, section("train."));
  visit_corpus_options(defaults.data, section("data."));
  visit_language_model_options(defaults.model, section("model."));
  return text + "  model.mixer.*               every option of the mixer, as listed in include/fem/options.h\n";
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a language model on text files");
  command->footer("What --set may change:\n" + settings_text() +
                  "\n"
                  "Writes to --out: checkpoints/step-N (a model folder each, with the optimizer), metrics.jsonl,\n"
                  "tensorboard/, loss.png. Ctrl-C saves a checkpoint first; --resume then goes on bit by bit as if it\n"
                  "had not stopped. Several processes train together under torchrun, Slurm or MPI.\n"
                  "\n"
                  "Examples:\n"
                  "  fem train 1m-fem-softmax --data book.txt --out runs/book\n"
                  "  fem train 1m-fem-gla --data 'src/**/*.py' --tokenizer sentencepiece:4000 --set train.steps=5000\n"
                  "  fem train 1m-fem-softmax --data book.txt --out runs/book --resume\n"
                  "  torchrun --standalone --nproc-per-node 2 --no-python fem train 10m-fem-softmax --data texts/\n"
                  "  fem train 1.3b-fem-softmax --parameters");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("recipe", arguments->recipe, "A .toml file or a name in configs/lm, such as 1m-fem-softmax")
      ->required()
      ->type_name("RECIPE");
  command
      ->add_option("--data", arguments->data,
                   "Files, folders or globs of UTF-8 text; .jsonl: the \"text\" of every line")
      ->type_name("PATH");
  command
      ->add_option("--validation", arguments->validation, "The same for validation; default: the last tenth of --data")
      ->type_name("PATH");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, a SentencePiece .model, or sentencepiece:N to train one of N pieces")
      ->type_name("NAME");
  command->add_option("--out", arguments->out, "Folder of the run; default runs/RECIPE")->type_name("DIR");
  command->add_option("--set", arguments->changes, "Change a value of the recipe, such as train.steps=500")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  command->add_flag("--resume", arguments->resume, "Go on from the newest checkpoint of --out, if there is one");
  command->add_flag("--parameters", arguments->parameters, "Only count the parameters of the recipe");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace fem
