#include "fem/letters.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "io/mixer_config.h"
#include "io/recipe.h"
#include "util/table.h"

namespace fem {
namespace {

struct Request {
  std::vector<std::string> letters;
  std::vector<std::string> assignments;
  int64_t n_embd = 512, n_head = 8;
  bool json = false;
};

void print(const Request& request) {
  nlohmann::json fields{{"n_embd", request.n_embd}, {"n_head", request.n_head}};
  for (const std::string& assignment : request.assignments) set_value(fields, assignment);
  const MixerOptions options = mixer_options_from_json(fields);

  Table table({"letters", "value width", "key width", "conditioner", "parameters", "of the full mixer"});
  for (const std::string& letters : request.letters) {
    const LetterChoice choice = with_letters(options, letters == "none" ? "" : letters);
    if (request.json) {
      std::cout << nlohmann::json{{"letters", letters},
                                  {"parameters", choice.parameters},
                                  {"full_parameters", choice.full_parameters},
                                  {"mixer", to_json(choice.options)}}
                       .dump()
                << "\n";
      continue;
    }
    const MixerSizes sizes = sizes_of(choice.options);
    table.add({letters, grouped(sizes.value), sizes.key ? grouped(sizes.key) : "-",
               choice.options.use_conv ? grouped(sizes.conditioner) : "-", grouped(choice.parameters),
               fixed(100.0 * static_cast<double>(choice.parameters) / static_cast<double>(choice.full_parameters), 2) +
                   " %"});
  }
  if (!request.json) std::cout << table.str();
}

}  // namespace

void add_letters_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("letters", "The paper's ablation letters as mixer options of equal size");
  const auto request = std::make_shared<Request>();
  for (const std::string_view each : kLetters) request->letters.emplace_back(each.empty() ? "none" : each);
  command->add_option("LETTERS", request->letters, "none, C, CL, CLT, CLTG, L, LT, LTG; default: all")->type_name("");
  command->add_option("--n-embd", request->n_embd, "Model width D")->capture_default_str()->type_name("D");
  command->add_option("--n-head", request->n_head, "Heads")->capture_default_str()->type_name("H");
  command->add_option("--set", request->assignments, "A mixer option, such as prior_type=gla or dialect=paper")
      ->type_name("NAME=VALUE")
      ->take_all();
  command->add_flag("--json", request->json, "One line of JSON each, with every option");
  command->footer(
      "C: conditioner, L: log-sum-exp read at beta = 1, T: learned temperature with the inner gate, G: outer gate. "
      "The value width is chosen so that every row has as many parameters as the full mixer, or nearly.\n"
      "\n"
      "Examples:\n"
      "  fem letters --n-embd 768 --n-head 12\n"
      "  fem letters CL LT --set prior_type=gla --set dialect=paper --json");
  command->callback([request] { print(*request); });
}

}  // namespace fem
