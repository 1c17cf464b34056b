#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>

#include "commands.h"
#include "fem/text/text_model.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/table.h"

namespace fem {
namespace {

using Clock = std::chrono::steady_clock;

struct GenerateArguments {
  std::string model, prompt_file;
  std::vector<std::string> prompts, stops;
  int64_t samples = 1;
  bool uncached = false, quiet = false;
  GenerateOptions options;
};

// All of a file or of what is piped in, without the line end that editors and echo add.
std::string whole_text(std::istream& stream) {
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::vector<std::string> prompts_of(const GenerateArguments& arguments) {
  std::vector<std::string> prompts = arguments.prompts;
  if (!arguments.prompt_file.empty()) {
    std::ifstream file(arguments.prompt_file, std::ios::binary);
    FEM_CHECK(file.is_open() && !std::filesystem::is_directory(arguments.prompt_file), "generate: the prompt file ",
              arguments.prompt_file, " cannot be read");
    prompts.push_back(whole_text(file));
  }
  if (prompts.empty()) prompts.push_back(::isatty(STDIN_FILENO) ? "" : whole_text(std::cin));
  for (const std::string& prompt : prompts)
    FEM_CHECK(utf8_prefix(prompt) == prompt.size(), "generate: expected the prompt as UTF-8 text, but byte ",
              utf8_prefix(prompt), " is none");
  return prompts;
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  FEM_CHECK(std::cout.good(), "generate: the text cannot be written to standard output");
}

std::string header_of(size_t row, size_t prompts, size_t samples) {
  std::string name;
  if (prompts > 1) name += "prompt " + std::to_string(row / samples + 1);
  if (samples > 1) name += (name.empty() ? "sample " : ", sample ") + std::to_string(row % samples + 1);
  return "--- " + name + " ---\n";
}

// Refuses other numbers in words; CLI11's own words for a range without an end are its largest double.
std::function<std::string(const std::string&)> number(const std::string& words,
                                                      const std::function<bool(double)>& holds) {
  return [=](const std::string& text) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) && holds(value) ? "" : "expected " + words + ", got " + text;
  };
}

// Counts tokens and the time from the first to the last.
class Speed {
 public:
  explicit Speed(size_t rows) : rows_(static_cast<int64_t>(rows)) {}

  void count() {
    if (++tokens_ == 1) first_ = Clock::now();
  }

  // Reading the prompt and choosing the first token of every row is not a step.
  std::string text() const {
    const double reading = seconds(start_, tokens_ > 0 ? first_ : Clock::now());
    const std::string prompt = " (the prompt was read in " + fixed(reading, 2) + " s)";
    if (tokens_ <= rows_) return grouped(tokens_) + " tokens" + prompt;
    const double rate = static_cast<double>(tokens_ - rows_) / seconds(first_, Clock::now());
    return grouped(tokens_) + " tokens, " + fixed(rate, 1) + " tokens/s" + prompt;
  }

 private:
  static double seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  const int64_t rows_;
  int64_t tokens_ = 0;
  Clock::time_point start_ = Clock::now(), first_;
};

void run(const GenerateArguments& arguments) {
  TextModel model = load_text_model(arguments.model);
  const std::vector<std::string> prompts = prompts_of(arguments);
  const auto samples = static_cast<size_t>(arguments.samples);
  TextOptions options{arguments.options, arguments.stops};
  options.tokens.cached = !arguments.uncached;
  std::vector<std::string> rows;
  for (const std::string& prompt : prompts) rows.insert(rows.end(), samples, prompt);

  const bool alone = rows.size() == 1;  // then the text is shown while it is made
  const InterruptGuard guard;
  Speed speed(rows.size());
  size_t shown = 0;
  if (alone) print(rows[0]);
  const std::vector<std::string> texts = generate_texts(model, rows, options, [&](size_t, const std::string& text) {
    speed.count();
    if (alone) print(text);
    shown += text.size();
    return !interrupted();
  });
  const std::string speed_text = speed.text();
  if (alone) print(texts[0].substr(shown) + "\n");
  for (size_t row = 0; row < rows.size() && !alone; ++row)
    print(header_of(row, prompts.size(), samples) + rows[row] + texts[row] + "\n");
  if (!arguments.quiet) std::cerr << speed_text << "\n";
}

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* generate = app.add_subcommand("generate", "Continue a text with a trained model");
  generate->footer(
      "The text appears as it is made. It ends with the document, at a stop string, after --max-tokens or by Ctrl-C.\n"
      "\n"
      "Examples:\n"
      "  fem generate runs/demo --prompt \"def main(\"\n"
      "  fem generate runs/demo --prompt-file start.txt --temperature 0\n"
      "  echo \"import os\" | fem generate runs/demo --top-p 0.9 --samples 3");
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  generate->add_option("model", arguments->model, "A model folder or a training run")->required()->type_name("MODEL");
  CLI::Option* prompt =
      generate->add_option("--prompt", arguments->prompts, "What the text begins with; again for another text")
          ->type_name("TEXT")
          ->allow_extra_args(false);
  generate
      ->add_option("--prompt-file", arguments->prompt_file,
                   "A file with the prompt; with neither, it is what is piped in. A last line end is left out")
      ->type_name("FILE")
      ->excludes(prompt);
  generate->add_option("--max-tokens", options.max_tokens, "At most so many tokens")
      ->check(number("0 or more", [](double n) { return n >= 0; }))
      ->type_name("N")
      ->capture_default_str();
  generate->add_option("--temperature", options.temperature, "0 always takes the likeliest token, 1 draws as learned")
      ->check(number("0 or more", [](double x) { return x >= 0 && std::isfinite(x); }))
      ->type_name("X")
      ->capture_default_str();
  generate->add_option("--top-k", options.top_k, "Draw from the K likeliest tokens")
      ->check(number("1 or more", [](double k) { return k >= 1; }))
      ->type_name("K");
  generate->add_option("--top-p", options.top_p, "Draw from the likeliest tokens that hold this much probability")
      ->check(number("more than 0 and at most 1", [](double p) { return p > 0 && p <= 1; }))
      ->type_name("P");
  generate
      ->add_option("--repetition-penalty", options.repetition_penalty,
                   "Above 1: tokens that occurred become less likely")
      ->check(number("more than 0", [](double x) { return x > 0 && std::isfinite(x); }))
      ->type_name("X")
      ->capture_default_str();
  generate->add_option("--stop", arguments->stops, "End before this text; again for another")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  generate->add_option("--seed", options.seed, "Another seed, another text")->type_name("N")->capture_default_str();
  generate->add_option("--samples", arguments->samples, "Texts for each prompt")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  generate->add_flag("--no-cache", arguments->uncached, "Read the whole text again for each token: slower, same text");
  generate->add_flag("--quiet", arguments->quiet, "Do not print the speed at the end");
  generate->callback([arguments] { run(*arguments); });
}

}  // namespace fem
