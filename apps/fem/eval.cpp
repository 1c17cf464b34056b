#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "commands.h"
#include "data/cache_folder.h"
#include "data/corpus.h"
#include "evaluate/perplexity.h"
#include "evaluate/tasks.h"
#include "fem/text/text_model.h"
#include "io/jsonl.h"
#include "tasks/language.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct EvalArguments {
  std::string model, json;
  std::vector<std::string> data, tasks;
  std::optional<int64_t> length;
  int64_t batch_rows = 8, max_tokens = 0, limit = 0;
};

// A model, and how it was trained if it is a run's.
struct Evaluated {
  TextModel model;
  std::optional<LanguageOptions> run;
  int64_t length;  // tokens a row
};

constexpr int64_t kLength = 512;  // of a model that is no run's

// The perplexity of a whole sentence may have twenty digits.
std::string brief(double value) {
  if (value < 1e5) return fixed(value, value < 100 ? 3 : 1);
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

void record(const EvalArguments& arguments, const TextModel& trained, const Json& result) {
  if (arguments.json.empty()) return;
  Json line{{"model", trained.folder.string()}};
  line.update(result);
  append_jsonl(arguments.json, line);
}

// The token files vanish at once: what is open stays readable.
TokenStream tokenized(const std::vector<std::string>& files, const TokenizerPtr& tokenizer) {
  const ScratchFolder scratch;
  return prepare_corpus({.validation = files, .cache = scratch.path()}, tokenizer).validation;
}

// What the run was validated on, from its cache of tokens if that is still there.
TokenStream validation_of(const LanguageOptions& run, const TokenizerPtr& tokenizer) {
  CorpusOptions corpus = run.corpus;
  std::optional<ScratchFolder> scratch;
  if (!fs::is_directory(corpus.cache.empty() ? user_cache_folder() : corpus.cache))
    corpus.cache = scratch.emplace().path();
  try {
    return prepare_corpus(corpus, tokenizer).validation;
  } catch (const c10::Error& error) {
    FEM_CHECK(false, error.what_without_backtrace(),
              " (the run's own validation text was looked for; name a text with --data)");
  }
}

void evaluate_data(const EvalArguments& arguments, Evaluated& evaluated) {
  TextModel& trained = evaluated.model;
  const TokenStream stream = arguments.data.empty() ? validation_of(*evaluated.run, trained.tokenizer)
                                                    : tokenized(arguments.data, trained.tokenizer);
  const int64_t all = stream.size() - 1;
  const auto start = std::chrono::steady_clock::now();
  Perplexity found;
  {
    Progress progress("perplexity", arguments.max_tokens > 0 ? std::min(arguments.max_tokens, all) : all, "token");
    found = measure_perplexity(trained.model, stream,
                               {.length = evaluated.length,
                                .batch_rows = arguments.batch_rows,
                                .max_tokens = arguments.max_tokens,
                                .on_read = [&](int64_t tokens, int64_t) {
                                  throw_if_interrupted();
                                  progress.update(tokens);
                                }});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double rate = static_cast<double>(found.tokens) / seconds;
  FEM_CHECK(std::isfinite(found.loss()), "eval: the model's loss is not finite; its parameters may be broken");

  std::string name = arguments.data.empty() ? "validation" : "";
  for (const std::string& file : arguments.data) name += (name.empty() ? "" : " ") + file;
  Table table({"data", "tokens", "loss", "perplexity", "bits/byte", "tokens/s"});
  table.add({name, grouped(found.tokens), fixed(found.loss(), 4), brief(found.perplexity()),
             fixed(found.bits_per_byte(), 4), grouped(std::llround(rate))});
  std::cout << table.str() << std::flush;
  record(arguments, trained,
         {{"data", arguments.data.empty() ? Json("validation") : Json(arguments.data)},
          {"length", evaluated.length},
          {"batch_rows", arguments.batch_rows},
          {"max_tokens", arguments.max_tokens},
          {"tokens", found.tokens},
          {"bytes", found.bytes},
          {"loss", found.loss()},
          {"perplexity", found.perplexity()},
          {"bits_per_byte", found.bits_per_byte()},
          {"tokens_per_second", rate}});
}

void evaluate_tasks(const EvalArguments& arguments, Evaluated& evaluated) {
  TextModel& trained = evaluated.model;
  Table table({"task", "questions", "accuracy", "±", "normalised", "perplexity"});
  const int64_t batch_tokens = evaluated.length * arguments.batch_rows;
  double accuracy = 0, normalized = 0;
  size_t scored = 0;
  for (const std::string& path : arguments.tasks) {
    TaskScore score;
    try {
      score = score_task(trained.model, *trained.tokenizer, path, batch_tokens, arguments.limit);
    } catch (const Interrupted&) {
      break;  // the table has those before it
    }
    ++scored;
    FEM_CHECK(!std::isnan(score.perplexity),
              "eval: the model's likelihoods are not numbers; its parameters may be broken");
    table.add({score.name, grouped(score.questions), percent(score.accuracy),
               score.questions > 1 ? percent(score.standard_error) : "", percent(score.normalized_accuracy),
               brief(score.perplexity)});
    accuracy += score.accuracy;
    normalized += score.normalized_accuracy;
    record(arguments, trained,
           {{"task", path},
            {"batch_tokens", batch_tokens},
            {"limit", arguments.limit},
            {"questions", score.questions},
            {"accuracy", score.accuracy},
            {"standard_error", score.standard_error},
            {"normalized_accuracy", score.normalized_accuracy},
            {"perplexity", score.perplexity},
            {"log_probabilities", score.log_probabilities}});
  }
  if (const auto count = static_cast<double>(scored); count > 1)
    table.add({"mean", "", percent(accuracy / count), "", percent(normalized / count), ""});
  std::cout << table.str() << std::flush;
}

void run(const EvalArguments& arguments) {
  if (!arguments.json.empty()) expect_appendable(arguments.json, "eval: --json");
  // A broken last file is better found now than in an hour.
  for (const std::string& path : arguments.tasks) read_task(path);
  Evaluated evaluated{.model = load_text_model(arguments.model)};
  evaluated.run = language_options_of_run(evaluated.model.folder);
  evaluated.length = arguments.length.value_or(evaluated.run ? evaluated.run->length : kLength);
  const InterruptGuard guard;
  const bool reads_text = !arguments.data.empty() || arguments.tasks.empty();
  FEM_CHECK(!reads_text || !arguments.data.empty() || evaluated.run, "eval: ", arguments.model,
            " is not a run of fem train, whose validation text is known: expected --data with texts or --task with "
            "files of questions");
  if (reads_text) evaluate_data(arguments, evaluated);
  if (reads_text && !arguments.tasks.empty()) std::cout << "\n";
  if (!arguments.tasks.empty()) evaluate_tasks(arguments, evaluated);
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "Measure a trained model: loss on text, accuracy on tasks");
  eval->footer(
      "Without --data and --task it measures a training run on its own validation text, as the run did at its end, but "
      "all of it.\n"
      "\n"
      "Tasks are JSON objects, one a line, recognised by their fields:\n"
      "  sentence_good, sentence_bad          minimal pairs (BLiMP)\n"
      "  query, choices, gold                 multiple choice (ARC, PIQA, COPA, ...)\n"
      "  context_options, continuation, gold  several beginnings (WinoGrande)\n"
      "  context, continuation                is it what greedy decoding gives? (LAMBADA)\n"
      "Scored is a space and the continuation after the context, tokenized as the lm-evaluation-harness does. The "
      "answer is the likeliest; normalised: by log-likelihood a character. Perplexity is that of the right "
      "continuation, a whole one, not a token. --json records every log-likelihood. "
      "Ctrl-C ends early with the tasks that are done.\n"
      "\n"
      "Examples:\n"
      "  fem eval runs/demo\n"
      "  fem eval runs/demo --data test.txt more/*.txt --length 1024\n"
      "  fem eval runs/demo --task blimp/*.jsonl --limit 100 --json results.jsonl");
  auto arguments = std::make_shared<EvalArguments>();
  const auto number = [&](const char* name, int64_t& value, int64_t least, int64_t most, const char* help) {
    return eval->add_option(name, value, help)->check(CLI::Range(least, most))->type_name("N")->capture_default_str();
  };
  eval->add_option("model", arguments->model, "A model folder or a training run")->required()->type_name("MODEL");
  eval->add_option("--data", arguments->data, "Files, folders and patterns of UTF-8 text, measured as one text")
      ->type_name("FILES");
  eval->add_option("--task", arguments->tasks, "Files of questions")->type_name("FILES");
  eval->add_option("--length", arguments->length,
                   "Tokens a row: no prediction sees more; default: the run's own, 512 for other models")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  number("--batch-rows", arguments->batch_rows, 1, 1 << 20, "Rows at a time");
  number("--max-tokens", arguments->max_tokens, 0, int64_t{1} << 40, "Only the first tokens of the text; 0: all");
  number("--limit", arguments->limit, 0, int64_t{1} << 40, "Only the first questions of each task; 0: all");
  eval->add_option("--json", arguments->json, "Also append one JSON object a result to this file")->type_name("FILE");
  eval->callback([arguments] { run(*arguments); });
}

}  // namespace fem
