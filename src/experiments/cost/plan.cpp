#include "experiments/cost/plan.h"

#include <set>

#include "bench/opponent.h"
#include "io/language_model_config.h"
#include "models/backbone.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kMostRounds = 1000;

// The ladders of the paper's tables, and everything there is to compare with.
std::vector<MixerRow> all_cost_rows() {
  std::vector<MixerRow> rows = mixer_rows({"attention"}, {});
  for (const MixerRow& row : mixer_rows(baseline_mixers(), {})) rows.push_back(row);
  const auto add = [&](const char* prior, const std::vector<std::string>& letters) {
    for (const MixerRow& row : mixer_rows({prior}, letters)) rows.push_back(row);
  };
  add("softmax", {"none", "C", "CL", "CLT", "LTG", "CLTG"});
  add("gla", {"none", "LTG", "CLTG"});
  add("mamba", {"none", "LTG", "CLTG"});
  add("linear", {"none"});
  return rows;
}

// Of a prior: with every letter as many parameters as attention, but for the conditioner, which comes on top.
nlohmann::json cost_widths(const std::string& row, const bench::Shape& shape) {
  for (const auto& [name, prior] : Spelling<PriorType>::values) {
    if (!row.starts_with(name)) continue;
    const MixerOptions equal = bench::equal_options(prior, shape);
    return {{"fem_ratio", equal.fem_ratio}, {"p_t_to_fem_ratio", equal.p_t_to_fem_ratio}, {"conv_hidden", 1}};
  }
  return nlohmann::json::object();
}

}  // namespace

CostPlan cost_preset(const std::string& name) {
  CostPlan plan;
  plan.preset = name;
  plan.rows = all_cost_rows();
  // Widths of the MLP: as many parameters as two matrices of D x 4 D have.
  CostTable five{"5", 8, 1364, {"5", 512, 4, 2048, 4}}, seven{"7", 12, 2048, {"7", 768, 12, 1024, 8}};
  if (name == "smoke") {
    five = {"5", 1, 84, {"5", 32, 2, 24, 2}};
    seven = {"7", 2, 88, {"7", 32, 4, 16, 1}};
    plan.rounds = 2;
  } else if (name == "mini") {
    five.layers = seven.layers = 2;
    five.shape.batch = seven.shape.batch = 1;
    plan.rounds = 5;
  } else {
    FEM_CHECK(name == "paper", "cost: expected preset smoke, mini or paper, got '", name, "'");
    plan.rounds = 3;
  }
  plan.tables = {five, seven};
  return plan;
}

BackboneOptions cost_options(const MixerRow& row, const CostTable& table) {
  nlohmann::json model{{"n_embd", table.shape.dim},
                       {"n_head", table.shape.heads},
                       {"n_layer", table.layers},
                       {"mlp_width", table.mlp_width},
                       {"mixer", cost_widths(row.name, table.shape)}};
  const nlohmann::json changes = changes_of(row, {{"model", model}}).at("model");
  for (const char* name : {"block_mixer", "mixer"}) model[name] = changes.at(name);
  model["mixer"].erase("conv_hidden");
  return completed(backbone_options_from_json(model), "cost");
}

void check(const CostPlan& plan) {
  FEM_CHECK(plan.rounds >= 1 && plan.rounds <= kMostRounds, "cost: expected --rounds from 1 to ", kMostRounds, ", got ",
            plan.rounds);
  FEM_CHECK(!plan.rows.empty() && !plan.tables.empty(), "cost: expected at least one of --rows and one of --tables");
  std::set<std::string> labels;
  for (const MixerRow& row : plan.rows)
    FEM_CHECK(labels.insert(row.label()).second, "cost: expected every row once, got ", row.label(), " twice");
  for (const CostTable& table : plan.tables)
    for (const MixerRow& row : plan.rows) backbone_parameters(cost_options(row, table));
}

}  // namespace fem
