#include <iostream>
#include <memory>

#include "commands.h"
#include "experiments/cost/experiment.h"
#include "sweeping.h"
#include "util/check.h"

namespace fem {
namespace {

struct CostArguments {
  std::string preset = "mini";
  std::vector<std::string> tables, rows;
  int64_t rounds = 0;  // 0: the preset's
  std::filesystem::path out = "runs/cost", from;

  CostPlan plan() const {
    CostPlan plan = cost_preset(preset);
    if (!rows.empty()) plan.rows.clear();
    for (const std::string& row : rows) plan.rows.push_back(mixer_row(row));
    if (!tables.empty())
      std::erase_if(plan.tables, [&](const CostTable& table) {
        return std::find(tables.begin(), tables.end(), table.name) == tables.end();
      });
    if (rounds) plan.rounds = rounds;
    plan.out = out;
    return plan;
  }
};

void run(const CostArguments& arguments) {
  if (!arguments.from.empty()) return print_cost_report(cost_lines(arguments.from), std::cout);
  const CostPlan plan = arguments.plan();
  if (!run_cost(plan, std::cout)) {
    std::cout << "Stopped; what was measured is kept, and the same command goes on.\n";
    return;
  }
  print_cost_report(cost_lines(plan.out), std::cout);
  std::cout << "Results: " << (plan.out / "results.jsonl").string() << "\n";
}

}  // namespace

void add_cost_experiment(CLI::App& experiment) {
  CLI::App* app = experiment.add_subcommand("cost", "What does a whole model cost? (Tables 5 and 7)");
  app->footer(
      "The blocks of a model with every mixer and letter, forward and with backward: milliseconds, tokens a second, "
      "peak "
      "memory, products; and the ratios to plain attention, which runs just before each of them in every round. The "
      "MLP is "
      "the same in all rows, so that the letters come on top, as in the paper.\n"
      "\n"
      "Presets:\n"
      "  smoke   a few channels and tokens          checks the plumbing\n"
      "  mini    2 layers, B 1, else as published   about ten minutes on two cores\n"
      "  paper   8 layers x 512, T 2,048, B 4, and 12 x 768, T 1,024, B 8\n"
      "          as published, hours on two cores; the cost is printed first\n"
      "\n"
      "Examples:\n"
      "  fem experiment cost\n"
      "  fem experiment cost --tables 7 --rows softmax+LTG,softmax+CLTG --rounds 9\n"
      "  fem experiment cost --from experiments/cost   the tables of what is there\n"
      "\n"
      "Ctrl-C keeps what was measured, and the same command goes on. Writes to --out: results.jsonl (a line per table, "
      "row and round, with machine and versions).");
  const auto arguments = std::make_shared<CostArguments>();
  app->add_option("--preset", arguments->preset, "smoke, mini or paper")
      ->check(CLI::IsMember({"smoke", "mini", "paper"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--tables", arguments->tables, "5, 7 or both, the default")
      ->check(CLI::IsMember({"5", "7"}))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  add_list(*app, "--rows", arguments->rows, "Such as attention,gla,softmax+CLTG,hyena; default: all");
  app->add_option("--rounds", arguments->rounds, "Times each row is run; default: the preset's")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app->add_option("--out", arguments->out, "Where results go; default runs/cost")->type_name("DIR");
  app->add_option("--from", arguments->from, "Measure nothing: the tables of the results in this folder")
      ->type_name("DIR");
  app->callback([arguments] { run(*arguments); });
}

}  // namespace fem
