// The grid of Table 1: what each cell trains, how large it is, and its table.
#include <gtest/gtest.h>

#include <map>

#include "experiments/mad/plan.h"
#include "support/error_text.h"
#include "tasks/mad/task.h"
#include "train/options.h"

namespace fem {
namespace {

using testing::fails_with;

int64_t parameters_of(const GridRun& run) {
  int64_t all = 0;
  for (const auto& [part, own] : mad_entry().parameters(run.recipe)) all += own;
  return all;
}

TEST(MadGrid, EveryRowOfTheTableHasAsManyParametersAsAttention) {
  for (const char* preset : {"mini", "paper"}) {
    MadPlan plan = mad_preset(preset);
    plan.tasks = {"in-context-recall"};
    const Grid grid = grid_of(plan);
    ASSERT_EQ(grid.cells[0].labels[0], "attention");
    const auto attention = static_cast<double>(parameters_of(run_of(grid, 0, 0, 1)));
    for (size_t cell = 0; cell < grid.cells.size(); ++cell)
      if (grid.cells[cell].labels[1] == "in-context-recall") {
        EXPECT_NEAR(parameters_of(run_of(grid, cell, 0, 1)) / attention, 1, 0.01) << grid.cells[cell].labels[0];
      }
  }
}

TEST(MadGrid, ARowTrainsItsMixerItsLettersAndItsDialect) {
  MadPlan plan = mad_preset("mini");
  plan.mixers = {{"attention", ""}, {"gla", "LT"}, {"softmax", "CLTG", "paper"}, {"mamba_unnormalised", "CLTG"}};
  plan.tasks = {"compression"};
  const Grid grid = grid_of(plan);
  const auto model = [&](size_t cell) { return mad_options_from_json(run_of(grid, cell, 0, 1).recipe).model; };
  EXPECT_EQ(grid.cells[0].labels, (std::vector<std::string>{"attention", "compression"}));
  EXPECT_EQ(model(0).block_mixer, BlockMixer::kAttention);
  EXPECT_EQ(model(0).mlp_width, 176);
  EXPECT_EQ(grid.cells[1].labels[0], "gla+LT");
  const MixerOptions gla = model(1).mixer;
  EXPECT_EQ(gla.prior_type, PriorType::kGla);
  EXPECT_EQ(gla.dialect, Dialect::kCorrected);
  EXPECT_EQ(std::tuple(gla.use_conv, gla.use_lse, gla.use_temperature, gla.use_outer_gate, gla.has_inner_gate()),
            std::tuple(false, true, true, false, true));
  EXPECT_EQ(*gla.qk_dim, 64);  // queries and keys of every letter are as wide
  EXPECT_EQ(grid.cells[2].labels[0], "softmax+CLTG paper");
  EXPECT_EQ(model(2).mixer.dialect, Dialect::kPaper);
  EXPECT_EQ(model(3).mixer.prior_type, PriorType::kMamba);
  EXPECT_FALSE(model(3).mixer.mamba_normalize);
}

TEST(MadGrid, ASeedDecidesExamplesAndParametersAndIsNotTheOneToChooseBy) {
  MadPlan plan = mad_preset("mini");
  const Grid grid = grid_of(plan);
  const GridRun run = run_of(grid, 0, 2, 3);
  EXPECT_EQ(run.recipe["data"]["seed"], 3);
  EXPECT_EQ(run.recipe["train"]["seed"], 3);
  EXPECT_EQ(run.recipe["train"]["learning_rate"], plan.learning_rates[2]);
  EXPECT_EQ(grid.choosing_seeds, (std::vector<int64_t>{0}));
  plan.seeds = {0, 1};
  EXPECT_TRUE(fails_with("seed 0 is one to choose by and one to report", [&] { grid_of(plan); }));
}

TEST(MadGrid, ThePapersPresetHasThePublishedSettings) {
  MadPlan plan = mad_preset("paper");
  plan.mixers = {{"attention", ""}};
  const Grid grid = grid_of(plan);
  std::map<std::string, int> settings;
  for (const Cell& cell : grid.cells) ++settings[cell.labels[1].substr(0, cell.labels[1].find(' '))];
  EXPECT_EQ(settings, (std::map<std::string, int>{{"in-context-recall", 11},
                                                  {"fuzzy-recall", 11},
                                                  {"noisy-recall", 14},
                                                  {"memorization", 6},
                                                  {"compression", 11},
                                                  {"selective-copying", 13}}));
  EXPECT_EQ(grid.choices.size(), 6U);  // three rates, two weight decays
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const GridRun run = run_of(grid, cell, 0, 1);
    const MadOptions options = mad_options_from_json(run.recipe);
    const std::string label = grid.cells[cell].labels[1];
    SCOPED_TRACE(label);
    if (label == "in-context-recall") {
      EXPECT_EQ(std::tuple(options.data.vocab_size, options.data.length, run.steps()), std::tuple(16, 128, 20000));
      EXPECT_EQ(std::tuple(options.model.n_embd, options.model.n_head, options.model.n_layer), std::tuple(128, 16, 2));
      EXPECT_EQ(learning_rate_at(train_options_from_json(run.recipe["train"]), 19999), 1e-4);  // constant
    }
    if (label == "in-context-recall N=800") {
      EXPECT_EQ(run.steps(), 1400);
    }
    if (label == "memorization") {
      EXPECT_EQ(run.steps(), 400);
    }
    if (label == "noisy-recall noise=0.6") {
      EXPECT_EQ(options.data.noise, 0.6);
    }
    if (label == "selective-copying n=96") {
      EXPECT_EQ(options.data.copied, 96);
    }
  }
}

TEST(MadGrid, ARowCanBeAskedForByItsLabel) {
  std::vector<std::string> labels;
  for (const MixerRow& row : mixer_rows({"hyena", "softmax+CL", "gla"}, {"none", "C"})) labels.push_back(row.label());
  EXPECT_EQ(labels, (std::vector<std::string>{"hyena", "softmax+CL", "gla", "gla+C"}));
}

TEST(MadGrid, WhatIsAskedForAndIsNotThereIsNamed) {
  EXPECT_TRUE(fails_with("got 'hyena+C'; hyena has none", [] { mixer_row("hyena+C"); }));
  EXPECT_TRUE(fails_with("got 'softmx'; did you mean softmax?", [] { mixer_row("softmx"); }));
  MadPlan plan = mad_preset("smoke");
  plan.mixers = {mixer_row("softmax+CX")};
  EXPECT_TRUE(fails_with("letters: expected one of", [&] { grid_of(plan); }));
  plan = mad_preset("smoke");
  plan.tasks = {"compresion"};
  EXPECT_TRUE(fails_with("did you mean compression?", [&] { grid_of(plan); }));
  EXPECT_TRUE(fails_with("expected --preset smoke, mini or paper, got 'big'", [] { mad_preset("big"); }));
}

TEST(MadTable, AveragesSettingsThenTasksAndLeavesOutWhatIsNotThere) {
  const Grid grid{.axes = {"mixer", "task"}, .seeds = {1, 2}};
  const auto row = [](const char* mixer, const char* task, std::vector<double> accuracies) {
    return SweepRow{.labels = {mixer, task},
                    .measures = {{"loss", summarize({9.0})}, {"accuracy", summarize(accuracies)}}};
  };
  // Attention: copying (0.5 + 0.7) / 2 = 0.6 and 0.2 in two settings: 0.4; compression 0.8; average 0.6.
  const std::string table = mad_table(
      grid, {row("attention", "selective-copying", {0.5, 0.7}), row("attention", "selective-copying V=32", {0.2, 0.2}),
             row("attention", "compression", {0.8, 0.8}), row("gla", "selective-copying", {0.5, 0.5}),
             row("gla", "selective-copying V=32", {0.5}), row("gla", "compression", {0.1, 0.3})});
  EXPECT_EQ(table,
            "mixer      compress  copy  average\n"
            "---------  --------  ----  -------\n"
            "attention      80.0  40.0     60.0\n"
            "gla            20.0     -        -\n");
}

}  // namespace
}  // namespace fem
