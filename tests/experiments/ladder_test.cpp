// The ladder's grid: what each rung trains, and how large it is.
#include <gtest/gtest.h>

#include "experiments/ladder/plan.h"
#include "support/error_text.h"
#include "tasks/table.h"

namespace fem {
namespace {

using testing::fails_with;

TEST(Ladder, EveryRungHasAsManyParametersAsAttentionAndItsOwnText) {
  LadderPlan plan;
  plan.mixers = mixer_rows({"attention", "softmax", "gla"}, {"none", "C", "CL", "CLT", "CLTG"});
  plan.texts = {ladder_text("plays=a.txt"), ladder_text("wiki=../data/b.txt,c.txt")};
  const Grid grid = grid_of(plan);
  ASSERT_EQ(grid.cells.size(), 22U);
  int64_t attention = 0;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const GridRun run = run_of(grid, cell, 1, 2);
    SCOPED_TRACE(run.name);
    nlohmann::json with_bytes = run.recipe;
    with_bytes["model"]["vocab_size"] = 256;
    int64_t parameters = 0;
    for (const auto& [part, count] : recipe_from_json(run.recipe).task->parameters(with_bytes)) parameters += count;
    if (cell == 0) attention = parameters;
    EXPECT_NEAR(static_cast<double>(parameters) / static_cast<double>(attention), 1, 0.01);
    EXPECT_EQ(run.recipe["train"]["learning_rate"], 3e-3);
    EXPECT_EQ(run.recipe["train"]["seed"], 2);
    EXPECT_EQ(run.recipe["data"]["train"][0], cell % 2 == 0 ? "a.txt" : "b.txt");
    EXPECT_EQ(run.recipe["data"].contains("validation"), cell % 2 == 1);
    // The record has names alone, and the run is told where they lie.
    const std::string told = cell % 2 == 0 ? "/a.txt\"]" : "/../data/b.txt\"]";
    EXPECT_TRUE(run.places.at(0).starts_with("data.train=[\"/") && run.places[0].ends_with(told)) << run.places[0];
    EXPECT_EQ(chooser_of(grid, cell), cell / 2 * 2);
  }
  EXPECT_EQ(grid.cells[20].labels[0], "gla+CLTG");
  const nlohmann::json full = run_of(grid, 20, 0, 1).recipe["model"];
  EXPECT_EQ(full["mixer"]["conv_hidden"], 32);
  EXPECT_EQ(full["mixer"]["prior_type"], "gla");
}

TEST(Ladder, ItsTableHasALineAMixerAndLeavesOutWhatHasNotEnded) {
  const Grid grid{.axes = {"mixer", "text"}, .seeds = {1, 2}};
  const auto row = [](const char* mixer, const char* text, std::vector<double> losses) {
    SweepRow made{.labels = {mixer, text}};
    if (losses.empty()) return made;
    made.choice = "learning_rate=0.003";
    made.parameters = 543168;
    made.measures = {{"perplexity", summarize({9.0, 9.0})}, {"loss", summarize(losses)}};
    return made;
  };
  EXPECT_EQ(ladder_table(grid, {row("attention", "plays", {1.5, 1.7}), row("attention", "wiki", {1.25}),
                                row("softmax+C", "plays", {}), row("softmax+C", "wiki", {})}),
            "mixer      parameters               chosen            plays  wiki\n"
            "---------  ----------  -------------------  ---------------  ----\n"
            "attention     543,168  learning_rate=0.003  1.6000 ± 0.1000     -\n"
            "softmax+C           -                    -                -     -\n");
}

TEST(Ladder, ATextIsANameAndOneOrTwoFiles) {
  const LadderText text = ladder_text("wiki=b.txt,c.txt");
  EXPECT_EQ(std::tie(text.name, text.train, text.validation), std::tuple("wiki", "b.txt", "c.txt"));
  for (const char* wrong : {"input.txt", "=input.txt", "plays="})
    EXPECT_TRUE(fails_with("--text: expected NAME=FILE", [&] { ladder_text(wrong); }));
  EXPECT_TRUE(fails_with("expected b.txt, which --text wiki names", [&] { expect_files(text); }));
}

}  // namespace
}  // namespace fem
