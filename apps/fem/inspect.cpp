#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "bar.h"
#include "beside.h"
#include "commands.h"
#include "inspect/ablation.h"
#include "inspect/numbers.h"
#include "inspect/statistics.h"
#include "io/jsonl.h"
#include "io/read_file.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/shell.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestText = uint64_t{1} << 28;

struct InspectArguments {
  std::vector<std::string> models;
  std::optional<std::string> text, file, csv, image;
  std::string target, json;
  fs::path out = "inspect.html";
  int64_t rows = 8, length = 256;
  bool summary = false, ablate = false, fresh = false;
};

std::string command_of(const InspectArguments& arguments) {
  std::vector<std::string> words{"fem", "inspect"};
  words.insert(words.end(), arguments.models.begin(), arguments.models.end());
  const auto add = [&](const char* name, const std::optional<std::string>& value) {
    if (value) words.insert(words.end(), {name, *value});
  };
  add("--text", arguments.text);
  add("--file", arguments.file);
  add("--csv", arguments.csv);
  add("--image", arguments.image);
  if (!arguments.target.empty()) add("--target", arguments.target);
  if (arguments.length != InspectArguments().length) add("--length", std::to_string(arguments.length));
  words.insert(words.end(), {"--out", arguments.out.string()});
  return shell_command(words);
}

std::unique_ptr<Subject> subject_of(const InspectArguments& arguments, const std::string& model, bool fresh) {
  const SubjectOptions options{.model = model, .rows = arguments.rows, .length = arguments.length, .fresh = fresh};
  if (arguments.text) return text_subject(options, *arguments.text);
  if (arguments.file) return text_subject(options, read_file(*arguments.file, "inspect", kLargestText));
  if (arguments.csv) return series_subject(options, *arguments.csv, arguments.target);
  if (arguments.image) return picture_subject(options, *arguments.image);
  if (std::unique_ptr<Subject> own = argmax_subject(options)) return own;
  FEM_CHECK(false,
            "inspect: expected something to show the model: --text or --file for a language model, --csv for a "
            "forecaster, --image for a classifier; only a run of argmax needs nothing");
}

void make_page(const InspectArguments& arguments) {
  FEM_CHECK(arguments.models.size() == 1 && !arguments.fresh,
            "inspect: a page shows one model; compare several, or one with how it started, by --summary");
  const std::string suffix = arguments.out.extension().string();
  FEM_CHECK(suffix == ".html" || suffix == ".safetensors", "inspect: expected --out to be a page, NAME.html, or its ",
            "numbers, NAME.safetensors, got ", arguments.out.string());
  const std::unique_ptr<Subject> subject = subject_of(arguments, arguments.models[0], false);
  const Safetensors numbers = page_numbers(*subject, command_of(arguments), bar_of("inspect", "parts"));
  if (arguments.out.has_parent_path()) fs::create_directories(arguments.out.parent_path());
  if (suffix == ".safetensors") {
    save_safetensors(arguments.out, numbers);
  } else {
    const Beside beside(arguments.out, ".safetensors", "inspect");
    save_safetensors(beside.path(), numbers);
    const PlotCommand script =
        plot_command("inspect_page.py", {beside.path().string(), "--out", arguments.out.string()});
    const auto failure = failure_of(script);
    if (failure) FEM_CHECK(false, "inspect: no page was made: ", *failure);
  }
  std::cout << "Page: " << arguments.out.string() << "\n";
}

void record(const InspectArguments& arguments, const Json& line) {
  if (!arguments.json.empty()) append_jsonl(arguments.json, line);
}

void summarise(const InspectArguments& arguments) {
  std::vector<std::string> names;
  std::vector<std::vector<LayerStatistics>> all;
  const auto add = [&](const std::string& name, const std::string& model, bool fresh) {
    const std::unique_ptr<Subject> subject = subject_of(arguments, model, fresh);
    names.push_back(name);
    all.push_back(statistics_of(*subject, bar_of(name, "rows")));
    Json layers = Json::array();
    for (const LayerStatistics& layer : all.back()) layers.push_back(layer.json());
    record(arguments, {{"model", model}, {"fresh", fresh}, {"layers", layers}});
  };
  for (const std::string& model : arguments.models) {
    const fs::path folder = fs::path(model).lexically_normal();
    const std::string name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    if (arguments.fresh) add(name + " at first", model, true);
    add(name, model, false);
  }
  std::cout << statistics_table(names, all)
            << "\nrank: effective rank of a head's channel-by-token weights, and of its prior's;\n"
               "attention has 1. other: channels whose largest weight is not on the prior's\n"
               "token. moved: weight that lies elsewhere than the prior's. nats: KL(q||p) a\n"
               "channel. beta*: hidden inverse temperature; at 0 the mean is read.\n";
}

void ablate_model(const InspectArguments& arguments) {
  FEM_CHECK(arguments.models.size() == 1, "inspect: --ablate takes one model");
  const std::unique_ptr<Subject> subject = subject_of(arguments, arguments.models[0], arguments.fresh);
  const std::vector<Ablation> found = ablate(*subject, {0.05, 0.1, 0.25, 0.5}, bar_of("ablate", "losses"));
  std::cout << ablation_table(found, subject->unit_of_loss());
  record(arguments, {{"model", arguments.models[0]},
                     {"fresh", arguments.fresh},
                     {"unit", subject->unit_of_loss()},
                     {"ablations", ablation_document(found)}});
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Look inside a model: which token every channel chose");
  command->footer(
      "One page that needs no network: the prior of a token over the past, and for every channel which token it chose, "
      "at which hidden temperature, for how many nats.\n"
      "\n"
      "--summary: the same on average, layer by layer, of one model or several. --ablate: what it costs to set the "
      "gate "
      "between mean and free energy. All is computed in float64.\n"
      "\n"
      "The page needs a Python, that of a picture one with matplotlib; --out NAME.safetensors writes the numbers alone "
      "and needs none.\n"
      "\n"
      "Examples:\n"
      "  fem inspect runs/book --text 'To be, or not to be' --out book.html\n"
      "  fem inspect runs/table --csv table.csv --target load\n"
      "  fem inspect runs/pictures --image new.png\n"
      "  fem inspect runs/book --file book.txt --summary --fresh --json book.jsonl\n"
      "  fem inspect runs/fem runs/attention --file book.txt --summary\n"
      "  fem inspect runs/book --file book.txt --ablate");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("models", arguments->models, "Runs, or model folders; several with --summary")
      ->required()
      ->type_name("DIR");
  CLI::Option* text = command->add_option("--text", arguments->text, "What a language model reads")->type_name("TEXT");
  CLI::Option* file = command->add_option("--file", arguments->file, "The same from a file")->type_name("FILE");
  CLI::Option* csv =
      command->add_option("--csv", arguments->csv, "A table that a forecaster reads; its last window is shown")
          ->type_name("FILE");
  CLI::Option* image =
      command
          ->add_option("--image", arguments->image,
                       "A picture for a classifier; or a folder of them as for fem classify, the first is shown")
          ->type_name("PATH");
  for (CLI::Option* one : {text, file, csv, image})
    for (CLI::Option* other : {text, file, csv, image})
      if (one != other) one->excludes(other);
  command->add_option("--target", arguments->target, "The column to show of a forecaster; default: the first")
      ->needs(csv)
      ->type_name("NAME");
  command->add_option("--length", arguments->length, "Tokens of a text that are shown, and of a row of --summary")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--rows", arguments->rows, "Rows of text, windows or pictures of --summary and --ablate")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--summary", arguments->summary, "Statistics of every layer as a table");
  command->add_flag("--ablate", arguments->ablate, "Losses with lambda set to 0 and 1, layer by layer");
  command->add_flag("--fresh", arguments->fresh, "With --summary: the same model as it starts, beside it");
  command->add_option("--json", arguments->json, "Append the figures of --summary or --ablate as lines of JSON")
      ->type_name("FILE");
  command->add_option("--out", arguments->out, "The page, or a .safetensors for its numbers; default inspect.html")
      ->type_name("FILE");
  command->callback([arguments] {
    FEM_CHECK(!arguments->summary || !arguments->ablate, "inspect: expected --summary or --ablate, got both");
    if (!arguments->json.empty()) {
      FEM_CHECK(arguments->summary || arguments->ablate, "inspect: --json is of --summary and --ablate");
      expect_appendable(arguments->json, "--json");
    }
    if (arguments->summary) return summarise(*arguments);
    if (arguments->ablate) return ablate_model(*arguments);
    make_page(*arguments);
  });
}

}  // namespace fem
