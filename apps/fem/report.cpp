#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "beside.h"
#include "commands.h"
#include "io/atomic_file.h"
#include "report/document.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/shell.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> runs;
  fs::path out = "report.html";
};

std::string command_text(const ReportArguments& arguments) {
  std::vector<std::string> words{"fem", "report"};
  words.insert(words.end(), arguments.runs.begin(), arguments.runs.end());
  words.insert(words.end(), {"--out", arguments.out.string()});
  return shell_command(words);
}

void run(const ReportArguments& arguments) {
  const std::string suffix = arguments.out.extension().string();
  FEM_CHECK(suffix == ".html" || suffix == ".json", "report: expected --out to be a page, NAME.html, or its numbers, ",
            "NAME.json, got ", arguments.out.string());
  const Json document = report_document(gather({arguments.runs.begin(), arguments.runs.end()}), shipped_claims(),
                                        command_text(arguments));
  const std::string text = document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (arguments.out.has_parent_path()) fs::create_directories(arguments.out.parent_path());
  if (suffix == ".json") {
    write_atomically(arguments.out, [&](std::ostream& file) { file << text; });
  } else {
    const Beside numbers(arguments.out, ".json", "report");
    write_atomically(numbers.path(), [&](std::ostream& file) { file << text; });
    const PlotCommand script = plot_command("report.py", {numbers.path().string(), "--out", arguments.out.string()});
    if (const auto failure = failure_of(script)) FEM_CHECK(false, "report: no page was made: ", *failure);
  }
  for (const Json& study : document["studies"]) {
    std::cout << study["title"].get<std::string>() << " (" << study["place"].get<std::string>() << ")\n";
    for (const Json& agreement : study["agreements"])
      if (agreement["is_average"] || study["agreements"].size() == 1)
        std::cout << "  " << agreement["sentence"].get<std::string>() << "\n";
  }
  std::cout << "Report: " << arguments.out.string() << "\n";
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Make one page of what folders of runs have found");
  command->footer(
      "A RUN is the folder of fem sweep, fem experiment or fem train, or experiments/lm; what it is, its content "
      "tells. "
      "The page is one file that needs no network: tables with the paper's figures beside them, how far the order "
      "agrees, what each letter changes with 95 % intervals, curves, configurations, and the commands that make it "
      "all again.\n"
      "\n"
      "Needs a Python with vl-convert-python; --out NAME.json writes the numbers alone and needs none.\n"
      "\n"
      "Examples:\n"
      "  fem report runs/grid --out grid.html\n"
      "  fem report experiments/cost experiments/argmax --out page.html\n"
      "  fem report runs/book runs/letters --out numbers.json");
  auto arguments = std::make_shared<ReportArguments>();
  command->add_option("runs", arguments->runs, "Folders of runs")->required()->type_name("RUN");
  command->add_option("--out", arguments->out, "The page, or a .json for its numbers; default report.html")
      ->type_name("FILE");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace fem
