// Attention as descent: what the grids train and how large it is, and what the toy must do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "experiments/energy/plan.h"
#include "experiments/energy/toy.h"
#include "io/temporary_folder.h"
#include "report/study.h"
#include "support/error_text.h"
#include "tasks/table.h"

namespace fem {
namespace {

using testing::fails_with;
using EnergyToy = testing::TemporaryFolder;

int64_t model_size(const GridRun& run) {
  const Recipe recipe = recipe_from_json(run.recipe);
  int64_t parameters = 0;
  for (const auto& [part, count] : recipe.task->parameters(recipe.sections)) parameters += count;
  return parameters;
}

void expect_variants(const Grid& grid, const EnergyPlan& plan) {
  ASSERT_EQ(grid.cells.size(), plan.variants.size());
  const auto attention = static_cast<double>(model_size(run_of(grid, 0, 0, 1)));
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const GridRun run = run_of(grid, cell, 1, 2);
    SCOPED_TRACE(run.name);
    EXPECT_EQ(grid.cells[cell].labels[0], plan.variants[cell].label);
    EXPECT_NEAR(static_cast<double>(model_size(run)) / attention, 1, 0.01);
    EXPECT_EQ(run.recipe["model"]["residual"], spelled(plan.variants[cell].residual));
    EXPECT_EQ(run.recipe["train"]["learning_rate"], plan.learning_rates[1]);
    EXPECT_EQ(run.recipe["train"]["seed"], 2);
  }
  EXPECT_EQ(grid.choosing_seeds, (std::vector<int64_t>{0}));
}

TEST(EnergyGrid, EveryVariantIsAsLargeAsAttentionAndHasItsRule) {
  for (const char* preset : {"smoke", "mini", "large"}) {
    const EnergyPlan plan = energy_preset(preset);
    const Grid language = language_grid(plan, {ladder_text("plays=a.txt")}), lis = lis_grid(plan);
    expect_variants(language, plan);
    expect_variants(lis, plan);
    EXPECT_EQ(run_of(language, 0, 0, 1).recipe["data"]["train"][0], "a.txt");
    const nlohmann::json task = run_of(lis, 0, 0, 3).recipe;
    EXPECT_EQ(task["data"]["kind"], "longest_increasing");
    EXPECT_EQ(task["data"]["seed"], 3);
    EXPECT_THAT(energy_cost(language), ::testing::HasSubstr(" runs, at most "));
  }
  const EnergyPlan mini = energy_preset("mini");
  const nlohmann::json model = run_of(lis_grid(mini), 0, 0, 1).recipe["model"];
  EXPECT_EQ(model["n_layer"], 4);
  EXPECT_EQ(run_of(lis_grid(mini), 7, 0, 1).recipe["model"]["curvature"], "isotropic");
  std::vector<std::string> labels;
  for (const EnergyVariant& variant : mini.variants) labels.push_back(variant.label);
  EXPECT_THAT(labels,
              ::testing::ElementsAreArray({"attention", "attention+gain", "attention+momentum", "attention+nesterov",
                                           "attention+nesterov_query", "newton", "newton_light",
                                           "newton_light_isotropic", "fem", "fem+momentum", "fem+nesterov"}));
}

TEST(EnergyGrid, WhatIsAskedForAndIsNotThereIsNamed) {
  EXPECT_TRUE(
      fails_with("got 'atention+gain'; did you mean attention+gain?", [] { energy_variants({"atention+gain"}); }));
  EXPECT_TRUE(fails_with("expected --preset smoke, mini or large, got 'big'", [] { energy_preset("big"); }));
  EXPECT_TRUE(fails_with("expected at least one --text", [] { language_grid(energy_preset("mini"), {}); }));
  EnergyPlan plan = energy_preset("mini");
  plan.seeds = {0};
  EXPECT_TRUE(fails_with("seed 0 is one to choose by and one to report", [&] { lis_grid(plan); }));
  EXPECT_TRUE(fails_with("expected positive temperatures, got 0", [] { toy_grid({.temperatures = {0.0}}); }));
}

// Nothing but the seed decides what is drawn.
TEST(ToyRules, AreFunctionsOfASeed) {
  const ToyPlan plan;
  const ToyRun once = run_toy(plan, "nesterov", 0.5, 1);
  EXPECT_EQ(once.energy.size(), 9U);
  EXPECT_EQ(once.energy, run_toy(plan, "nesterov", 0.5, 1).energy);
  EXPECT_NE(once.energy, run_toy(plan, "nesterov", 0.5, 2).energy);
  EXPECT_EQ(once.energy[0], run_toy(plan, "newton, exact", 0.5, 1).energy[0]);
}

TEST(ToyRules, DescentFallsInEveryLayerAndALongerStepIsMostOfMomentum) {
  const ToyPlan plan;
  for (const double temperature : plan.temperatures) {
    SCOPED_TRACE(temperature);
    const auto energies = [&](const char* rule) { return run_toy(plan, rule, temperature, 1).energy; };
    const std::vector<double> descent = energies("descent"), longer = energies("descent, longer step");
    const std::vector<double> momentum = energies("momentum"), nesterov = energies("nesterov");
    EXPECT_TRUE(std::is_sorted(descent.rbegin(), descent.rend()));
    EXPECT_LT(momentum.back(), descent.back());
    EXPECT_LT(nesterov.back(), momentum.back());
    EXPECT_LT(longer.back(), nesterov.back());
  }
}

TEST(ToyRules, RulesAgreeWhereTheyMust) {
  ToyPlan plan;
  const auto energies = [&](const char* rule, double temperature) {
    return run_toy(plan, rule, temperature, 1).energy;
  };
  const auto expect_same = [](const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_THAT(a, ::testing::Pointwise(::testing::DoubleNear(1e-9 * std::abs(b[0])), b));
  };
  plan.decay = 0;
  for (const char* rule : {"descent, longer step", "momentum", "nesterov"})
    expect_same(energies(rule, 0.5), energies("descent", 0.5));
  // A hot Hessian is the identity.
  for (const char* rule : {"newton, first order", "newton, light diagonal", "newton, light isotropic", "newton, exact"})
    EXPECT_NEAR(energies(rule, 1e7)[3], energies("descent", 1e7)[3], 1e-5) << rule;
  plan.rate = 1;
  expect_same(energies("newton, exact and whole", 0.5), energies("newton, exact", 0.5));
  // In one dimension a diagonal is all there is.
  plan.width = 1;
  plan.rate = 0.3;
  expect_same(energies("newton, light diagonal", 0.5), energies("newton, first order", 0.5));
  expect_same(energies("newton, light isotropic", 0.5), energies("newton, first order", 0.5));
}

TEST(ToyRules, ExactNewtonFailsWhereTheHessianIsIndefinite) {
  const ToyPlan plan;
  const auto run = [&](const char* rule, double temperature) { return run_toy(plan, rule, temperature, 1); };
  EXPECT_EQ(run("newton, exact", 4).indefinite, 0);
  EXPECT_LT(run("newton, exact", 4).energy.back(), run("descent", 4).energy.back());
  EXPECT_GT(run("newton, exact", 0.5).indefinite, 0.8);
  EXPECT_GT(run("newton, exact", 0.5).energy.back(), run("descent", 0.5).energy.back() + 0.5);
  EXPECT_GT(run("newton, exact", 0.5).risen, 0.03);
  EXPECT_EQ(run("descent", 0.5).risen, 0);
}

TEST_F(EnergyToy, IsAStudyOfTheReportAndIsNotRunTwice) {
  const ToyPlan plan{.keys = 6, .queries = 5, .layers = 3, .temperatures = {1, 0.5}, .seeds = {4, 5}};
  run_toy(plan, folder / "toy");
  const size_t runs = 2 * 2 * toy_rules().size();
  EXPECT_EQ(SweepResults(sweep_results_path(folder / "toy")).lines().size(), runs);
  const auto before = std::filesystem::file_size(sweep_results_path(folder / "toy"));
  run_toy(plan, folder / "toy");
  EXPECT_EQ(std::filesystem::file_size(sweep_results_path(folder / "toy")), before);
  const std::vector<Study> studies = gather({folder / "toy"});
  ASSERT_EQ(studies.size(), 1U);
  EXPECT_EQ(studies[0].axes, (std::vector<std::string>{"rule", "temperature"}));
  ASSERT_EQ(studies[0].curves.size(), runs);
  EXPECT_EQ(studies[0].curves[0].measures.at("free_energy").size(), 4U);
  EXPECT_EQ(studies[0].curves[0].measures.at("free_energy").at(0), run_toy(plan, "descent", 1, 4).energy[0]);
}

}  // namespace
}  // namespace fem
