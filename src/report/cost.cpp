#include "report/cost.h"

#include "experiments/cost/experiment.h"
#include "experiments/cost/published.h"
#include "util/table.h"

namespace fem {
namespace {

// A column: what of a line is divided by what.
struct Ratio {
  const char *kind, *over, *under;
  bool memory;
};
constexpr Ratio kRatios[]{{"forward", "ms", "attention_ms", false},
                          {"training", "ms", "attention_ms", false},
                          {"forward", "peak_bytes", "attention_peak_bytes", true},
                          {"training", "peak_bytes", "attention_peak_bytes", true}};

std::string column_of(const std::string& table, const Ratio& ratio) {
  return "Table " + table + ", " + ratio.kind + (ratio.memory ? " memory" : "");
}

std::optional<double> published_ratio(const std::string& table, const std::string& row, const Ratio& ratio) {
  const auto paper = published_cost(table, row);
  if (!paper) return std::nullopt;
  const bool forward = ratio.kind == std::string("forward");
  if (ratio.memory) return forward ? paper->forward_memory : paper->training_memory;
  return forward ? paper->forward : paper->training;
}

}  // namespace

Study cost_study(const std::filesystem::path& folder) {
  Study study;
  study.kind = "fem experiment cost";
  study.place = folder.string();
  study.timed = true;
  for (const Json& line : cost_lines(folder))
    for (const Ratio& ratio : kRatios) {
      const Json& figures = line.at(ratio.kind);
      study.lines.push_back(
          {{"run", ""},
           {"cell", {{"mixer", line.at("row")}, {"cost", column_of(line.at("table"), ratio)}}},
           {"choice", ""},
           {"seed", line.at("round")},
           {"reported", true},
           {"parameters", line.at("parameters")},
           {"goal", {{"measure", "ratio"}, {"larger_is_better", false}}},
           {"measures",
            {{"ratio", figures.at(ratio.over).get<double>() / figures.at(ratio.under).get<double>()},
             {ratio.memory ? "MiB" : "ms", figures.at(ratio.over).get<double>() / (ratio.memory ? 1048576 : 1)}}},
           {"recipe", line.at("config")}});
    }
  complete(study);
  return study;
}

Claim cost_claim() {
  Claim claim{.title = "What whole models cost",
              .question = "How much slower and larger is a model with each mixer than with plain attention?",
              .source = "Tables 5 and 7 of the paper, one L40S, as ratios to its plain attention",
              .remark = "Ratios to plain attention, which runs just before the row in every round; below 1 is cheaper.",
              .command = "fem experiment cost --out experiments/cost",
              .row_axis = "mixer",
              .column_axis = "cost",
              .measure = "ratio",
              .unit = "of attention's",
              .digits = 2};
  const CostPlan plan = cost_preset("paper");
  for (const CostTable& table : plan.tables)
    for (const Ratio& ratio : kRatios)
      claim.columns.push_back({column_of(table.name, ratio), column_of(table.name, ratio)});
  for (const MixerRow& row : plan.rows) {
    ClaimRow own{.label = row.label()};
    for (const CostTable& table : plan.tables)
      for (const Ratio& ratio : kRatios) {
        const auto value = published_ratio(table.name, own.label, ratio);
        own.published.push_back(value ? Published{fixed(*value, 2), value} : Published{});
      }
    own.published.emplace_back();  // no average
    claim.rows.push_back(std::move(own));
  }
  return claim;
}

}  // namespace fem
