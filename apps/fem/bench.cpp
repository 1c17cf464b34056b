#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "bench/benchmarks.h"
#include "bench/energy.h"
#include "bench/growth.h"
#include "bench/stream.h"
#include "commands.h"
#include "util/interrupt.h"

namespace fem {

// CLI11 prints the choices where torch's headers know how to print a map.
static std::ostream& operator<<(std::ostream& stream, PriorType prior) { return stream << spelled(prior); }

namespace {

std::map<std::string, PriorType> prior_names() {
  std::map<std::string, PriorType> names;
  for (const auto& [name, prior] : Spelling<PriorType>::values) names.emplace(name, prior);
  return names;
}

std::vector<PriorType> every_prior() {
  std::vector<PriorType> priors;
  for (const auto& [name, prior] : Spelling<PriorType>::values) priors.push_back(prior);
  return priors;
}

void add_priors(CLI::App& app, std::vector<PriorType>& priors) {
  app.add_option("--priors", priors,
                 "Which priors to run: softmax, linear, gla, rnn_softmax, rnn_decay, mamba; default all")
      ->transform(CLI::CheckedTransformer(prior_names()).description(""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
}

struct BenchArguments {
  std::vector<PriorType> priors = every_prior();
  std::vector<std::string> shapes;
  int64_t repeats = 15;
  std::string json;
};

using Benchmark = std::function<std::vector<bench::Case>(const bench::Settings&)>;

void add(CLI::App& parent, const std::string& name, const std::string& description, const std::string& footer,
         const Benchmark& benchmark, const std::vector<std::string>& shapes = {"S1", "S2", "S3", "S4"}) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->footer(footer);
  auto arguments = std::make_shared<BenchArguments>();
  arguments->shapes = shapes;
  add_priors(*app, arguments->priors);
  app->add_option("--shapes", arguments->shapes, "Which shapes to run")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->default_str(CLI::detail::join(shapes));
  app->add_option("--repeats", arguments->repeats, "Pairs per case")
      ->check(CLI::Range(1, 100000))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Also write one JSON object per case, a line each")->type_name("FILE");
  app->callback([arguments, benchmark] {
    std::ofstream json;
    if (!arguments->json.empty()) json = bench::open_json(arguments->json);
    const InterruptGuard guard;
    const bench::Settings settings{arguments->priors, bench::shapes_named(arguments->shapes), arguments->repeats};
    // Before and after: a slow moment of the machine does not lower the roof.
    const bench::Roof before = bench::measure_roof();
    const std::vector<bench::Case> cases = benchmark(settings);
    const bench::Roof roof = bench::higher(before, bench::measure_roof());
    bench::print_table(cases, roof, std::cout);
    if (json.is_open()) bench::write_json(cases, roof, json);
  });
}

void add_growth(CLI::App& parent) {
  struct Arguments {
    bench::GrowthSettings settings{every_prior()};
    std::string json;
  };
  CLI::App* app = parent.add_subcommand("growth", "How the cost of every prior's read grows with the tokens");
  app->footer(
      "Times the reads at T = 1,024, 2,048, ... and fits time ~ T^n: n is near 2 for softmax (and for torch's "
      "attention, which is run beside it) and 1 for all others. Ctrl-C ends early with what there is.\n"
      "\n"
      "Example:\n  fem bench growth --priors gla,mamba --longest 131072 --json growth.jsonl");
  auto arguments = std::make_shared<Arguments>();
  add_priors(*app, arguments->settings.priors);
  app->add_option("--longest", arguments->settings.longest, "Most tokens")
      ->check(CLI::Range(2048, 1 << 24))
      ->type_name("T")
      ->capture_default_str();
  app->add_option("--repeats", arguments->settings.repeats, "Runs per length")
      ->check(CLI::Range(1, 100000))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Also write one JSON object per read, a line each")->type_name("FILE");
  app->callback([arguments] {
    std::ofstream json;
    if (!arguments->json.empty()) json = bench::open_json(arguments->json);
    const InterruptGuard guard;
    const std::vector<bench::Growth> all = bench::bench_growth(arguments->settings);
    bench::print_growth(all, std::cout);
    if (json.is_open()) bench::write_growth_json(all, json);
  });
}

void add_energy(CLI::App& parent) {
  struct Arguments {
    std::vector<std::string> shapes{"S1", "S2"};
    int64_t repeats = 15;
    std::string json;
  };
  CLI::App* app = parent.add_subcommand("energy", "What newton and newton_light cost beside attention's own core");
  app->footer(
      "Scores, weights and mixes alone, without projections: forward, backward, and one query after all tokens. The "
      "core is attention on the same kernels; torch's is run beside it. Stated: the ratio of multiply-adds. Ctrl-C "
      "ends early with what there is.\n"
      "\n"
      "Example:\n  fem bench energy --shapes S2,S3 --repeats 31 --json energy.jsonl");
  auto arguments = std::make_shared<Arguments>();
  app->add_option("--shapes", arguments->shapes, "Which shapes to run")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->default_str(CLI::detail::join(arguments->shapes));
  app->add_option("--repeats", arguments->repeats, "Runs per case")
      ->check(CLI::Range(1, 100000))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Also write one JSON object per case, a line each")->type_name("FILE");
  app->callback([arguments] {
    std::ofstream json;
    if (!arguments->json.empty()) json = bench::open_json(arguments->json);
    const InterruptGuard guard;
    const auto cases = bench::bench_energy(bench::shapes_named(arguments->shapes), arguments->repeats);
    bench::print_energy(cases, std::cout);
    if (json.is_open()) bench::write_energy_json(cases, json);
  });
}

void add_stream(CLI::App& parent) {
  struct Arguments {
    bench::StreamSettings settings{every_prior()};
    std::string json;
  };
  CLI::App* app = parent.add_subcommand("stream", "A million tokens through a state: speed and memory, early and late");
  app->footer(
      "Reads a long stream with every prior, a thousand tokens a call and token by token near the beginning and at "
      "the end. A state of fixed size, and nothing else that grows: the resident set of the process stays where it was "
      "after the first hundredth of the tokens. softmax, which remembers tokens, has a window. Ctrl-C ends early with "
      "what there is.\n"
      "\n"
      "Example:\n  fem bench stream --priors gla,mamba --tokens 3000000 --json stream.jsonl");
  auto arguments = std::make_shared<Arguments>();
  add_priors(*app, arguments->settings.priors);
  app->add_option("--tokens", arguments->settings.tokens, "Tokens of each stream")
      ->check(CLI::Range(20000, 1 << 30))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--window", arguments->settings.window, "Window of the softmax prior")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Also write one JSON object per prior, a line each")->type_name("FILE");
  app->callback([arguments] {
    std::ofstream json;
    if (!arguments->json.empty()) json = bench::open_json(arguments->json);
    const InterruptGuard guard;
    const std::vector<bench::Stream> streams = bench::bench_stream(arguments->settings);
    bench::print_streams(streams, arguments->settings, std::cout);
    if (json.is_open()) bench::write_stream_json(streams, arguments->settings, json);
  });
}

constexpr const char* kShapes =
    "Shapes, float32:\n"
    "  S1   D 768, H 12, T 1024, B 2\n"
    "  S2   D 512, H  4, T 2048, B 1\n"
    "  S3   S2 with T 4096\n"
    "  S4   S2 with T 8192\n"
    "  N128, N256, N512  that wide, H 4 (N512: 8), T 256, B 16; only if asked for\n"
    "\n"
    "Both sides run in turn in this process; the ratio of their medians is what counts, below 1 is faster. "
    "Speeds are also given as shares of the roof: the machine's own speed of multiply-adds, measured in the same run. "
    "The targets are meant for two threads on an otherwise idle machine. Ctrl-C ends early with what there is.\n";

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Compare speed and memory with torch's attention");
  bench->require_subcommand(1);
  bench->fallthrough();
  bench->footer(
      "Examples:\n  fem bench read --priors softmax,gla --shapes S2\n  fem bench layer --repeats 31 --json "
      "layer.jsonl");
  add(*bench, "read", "Every prior's read against torch's attention of the same width",
      std::string(kShapes) +
          "\nExample:\n  fem bench read --priors softmax --shapes S1,S2 --repeats 31 --json read.jsonl",
      bench::bench_read);
  add(*bench, "layer", "The whole mixer against a plain causal attention layer",
      std::string(kShapes) + "\nExample:\n  fem bench layer --priors gla,mamba --shapes S2 --json layer.jsonl",
      [](const bench::Settings& settings) { return bench::bench_layer(settings, std::cout); });
  add(*bench, "decode", "One more token: the mixer and its state against attention and its cache",
      "A stack of four layers. Shapes, float32: D 768, H 12, after 4096 tokens\n"
      "  D1   one sequence\n"
      "  D8   8 sequences\n"
      "  D32  32 sequences; only if asked for, because of its memory\n"
      "\n"
      "What it will take of memory is printed first. Both sides run in turn in this process. GB/s are what each must "
      "move in that time, and their share of the roof is that of the memory's speed, measured in the same run. Ctrl-C "
      "ends early with what there is.\n"
      "\nExample:\n  fem bench decode --priors softmax,gla --shapes D1 --repeats 201",
      [](const bench::Settings& settings) { return bench::bench_decode(settings, std::cout); }, {"D1", "D8"});
  add_energy(*bench);
  add_growth(*bench);
  add_stream(*bench);
}

}  // namespace fem
