// From folders to the numbers of a page; the page itself is tested by page_test.py.
#include <nlohmann/json.hpp>

#include "report/cost.h"
#include "report/document.h"
#include "report/reports.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;
using testing::Reports;

TEST_F(Reports, TheChoiceIsMadeByTheSeedsThatAreNotReported) {
  // Seed 0 chooses: fast, by 0.6 against 0.5. Seeds 1 and 2 report, and what slow has of seed 1 is left from a grid
  // that chose otherwise.
  finish("a", "recall", "slow", 0, 0.5);
  finish("a", "recall", "fast", 0, 0.6);
  finish("a", "recall", "huge", 0, 0.1);
  finish("a", "recall", "slow", 1, 0.9);
  finish("a", "recall", "fast", 1, 0.2);
  finish("a", "recall", "fast", 2, 0.3);
  fail("b", "recall", "slow", 0);         // in progress: two choices are still to come
  finish("c", "recall", "fast", 1, 0.7);  // by a call that had nothing to choose
  const Study found = study();
  EXPECT_EQ(found.axes, (std::vector<std::string>{"mixer", "task"}));
  EXPECT_EQ(found.measure, "accuracy");
  EXPECT_TRUE(found.curves.empty());
  ASSERT_EQ(found.rows.size(), 3U);
  EXPECT_EQ(found.rows[0].choice, "fast");
  EXPECT_NEAR(found.rows[0].measures.at(0).second.mean, 0.25, 1e-15);
  EXPECT_NEAR(*found.rows[0].measures.at(0).second.standard_error, 0.05, 1e-15);
  EXPECT_EQ(found.rows[1].choice, "");
  EXPECT_TRUE(found.rows[1].measures.empty());
  EXPECT_EQ(found.rows[1].failed, 1U);
  EXPECT_EQ(found.rows[2].choice, "fast");
  EXPECT_EQ(found.rows[2].measures.at(0).second.mean, 0.7);
}

TEST_F(Reports, OfEqualsTheReportedChoiceCountsWhateverTheOrderOfLines) {
  for (const char* choice : {"slow", "fast"}) finish("a", "recall", choice, 0, 1.0);
  finish("a", "recall", "fast", 1, 0.2);
  for (const char* choice : {"fast", "slow"}) finish("b", "recall", choice, 0, 1.0);
  finish("b", "recall", "slow", 1, 0.8);  // from a call whose list began with another
  finish("b", "recall", "fast", 1, 0.3);
  const Study found = study();
  ASSERT_EQ(found.rows.size(), 2U);
  for (const size_t row : {0, 1}) EXPECT_EQ(found.rows[row].choice, "fast");
  EXPECT_EQ(found.rows[0].measures.at(0).second.mean, 0.2);
  EXPECT_EQ(found.rows[1].measures.at(0).second.mean, 0.3);
}

TEST_F(Reports, ModelsMayHaveChoicesOfTheirOwnAndTakeOverThoseOfAnotherColumn) {
  finish("a", "recall", "slow", 0, 0.5);
  finish("a", "recall", "fast", 0, 0.6);
  finish("a", "recall", "fast", 1, 0.2);
  finish("a", "copy", "slow", 1, 0.9);  // left from a grid that chose otherwise
  finish("a", "copy", "fast", 1, 0.3);
  finish("b", "recall", "5", 0, 0.1);
  finish("b", "recall", "50", 0, 0.2);
  finish("b", "recall", "50", 1, 0.4);
  finish("c", "recall", "slow", 0, 0.5);  // its other choice may still be running
  const Study found = study();
  ASSERT_EQ(found.rows.size(), 4U);
  const char* choices[] = {"fast", "fast", "50", ""};
  const double means[] = {0.2, 0.3, 0.4};
  for (const size_t row : {0, 1, 2, 3}) EXPECT_EQ(found.rows[row].choice, choices[row]);
  for (const size_t row : {0, 1, 2}) EXPECT_EQ(found.rows[row].measures.at(0).second.mean, means[row]);
  EXPECT_TRUE(found.rows[3].measures.empty());
}

TEST_F(Reports, ASweepHasTheSameRowsWithItsGridAndWithoutIt) {
  write(folder / "base.toml", "task = \"argmax\"\n[train]\nsteps = 30\n");
  write(folder / "grid.toml",
        "recipe = \"base.toml\"\nseeds = [1, 2]\n[axes.mixer]\nfem = { model.mixer = \"fem\" }\n"
        "mean = { model.mixer = \"mean\" }\n[choose]\nseeds = [7, 8]\nsettings.train.learning_rate = [0.1, 0.01]\n");
  const Grid grid = load_grid(folder / "grid.toml");
  SweepResults results(sweep_results_path(folder));
  double loss = 0.5;
  for (size_t cell : {0, 1})
    for (size_t choice : {0, 1})
      for (const int64_t seed : {7, 8, 1, 2})
        if (seed > 2 || choice == cell)  // the first cell's best is the first choice, the second's the second
          results.add_finished(grid, run_of(grid, cell, choice, seed),
                               {{"parameters", 5},
                                {"goal", {{"measure", "loss"}, {"larger_is_better", false}}},
                                {"measures", {{"loss", (choice == cell ? 0 : 1) + (loss *= 0.9)}}}});
  const std::vector<SweepRow> with = sweep_rows(grid, results);
  const Study without = study();
  ASSERT_EQ(with.size(), 2U);
  EXPECT_EQ(with[0].choice, "learning_rate=0.1");
  EXPECT_EQ(with[1].choice, "learning_rate=0.01");
  EXPECT_EQ(sweep_table(grid, without.rows), sweep_table(grid, with));
}

TEST_F(Reports, TheBoardHasThePapersOrderAndAveragesOfCommonSeeds) {
  for (const int64_t seed : {1, 2}) {
    finish("b", "recall", "", seed, 0.3 + 0.1 * static_cast<double>(seed));  // 40, 50
    finish("a", "recall", "", seed, 0.1);
    finish("other", "recall", "", seed, 0.9);
    finish("b", "copy", "", seed, 0.2);
  }
  finish("b", "copy", "", 3, 0.8);  // a seed that recall has not
  const Claim about = claim();
  const Study found = study();
  const std::vector<Claim> claims{{.row_axis = "colour", .measure = "accuracy"}, about};
  ASSERT_EQ(claim_about(found, claims), &claims[1]);
  const Board board = board_of(found, &about);
  ASSERT_EQ(board.rows.size(), 3U);
  EXPECT_EQ(board.rows[0].label, "a");  // first in the paper, second in the file
  EXPECT_EQ(board.rows[1].label, "b");
  EXPECT_EQ(board.rows[2].label, "other");
  ASSERT_EQ(board.columns.size(), 3U);
  EXPECT_EQ(board.columns[0].title, "Recall");
  EXPECT_EQ(board.columns[2].title, "Average");
  EXPECT_EQ(board.rows[1].cells[1].published.text, "about 40");
  EXPECT_EQ(board.rows[1].cells[2].published.value, 35);
  // Seed 1: (40 + 20) / 2, seed 2: (50 + 20) / 2.
  ASSERT_EQ(board.rows[1].cells[2].values.size(), 2U);
  EXPECT_NEAR(board.rows[1].cells[2].values.at(1), 30, 1e-12);
  EXPECT_NEAR(board.rows[1].cells[2].values.at(2), 35, 1e-12);
  EXPECT_TRUE(board.rows[0].cells[2].values.empty());  // a has no copy
  EXPECT_FALSE(board.rows[2].cells[0].published.value);
}

TEST_F(Reports, WithoutAClaimTheLastAxisMakesTheColumns) {
  finish("z", "copy", "", 1, 0.25);
  finish("y", "copy", "", 1, 0.50);
  const Study found = study();
  const Claim about = claim();
  EXPECT_EQ(claim_about(found, {about}), nullptr);  // none of its rows
  const Board board = board_of(found, nullptr);
  ASSERT_EQ(board.rows.size(), 2U);
  EXPECT_EQ(board.rows[0].label, "z");
  EXPECT_EQ(board.row_axis, "mixer");
  EXPECT_EQ(board.column_axis, "task");
  EXPECT_EQ(board.columns.size(), 1U);
  EXPECT_EQ(board.rows[1].cells[0].values.at(1), 0.5);  // no scale, no unit
  EXPECT_TRUE(agreements_of(board).empty());
}

TEST_F(Reports, TheClaimWithTheMostRowsIsTheOne) {
  finish("a", "recall", "", 1, 0.25);
  finish("b", "recall", "", 1, 0.5);
  std::vector<Claim> claims{claim(), claim()};
  claims[0].rows.resize(1);
  EXPECT_EQ(claim_about(study(), claims), &claims[1]);
}

TEST_F(Reports, ASweepsCurvesAreInItsLines) {
  const Json measured{{"measures", {{"accuracy", 0.5}}}, {"curve", {{100, 0.25}, {200, 0.5}}}};
  append_jsonl(folder / "results.jsonl", line("a", "recall", "", 1, measured));
  append_jsonl(folder / "results.jsonl", line("a", "recall", "", 0, measured));  // to choose by: not shown
  const Study found = study();
  ASSERT_EQ(found.curves.size(), 1U);
  EXPECT_EQ(found.curves[0].seed, 1);
  EXPECT_EQ(found.curves[0].measures.at("accuracy"), (std::map<int64_t, double>{{100, 0.25}, {200, 0.5}}));
}

TEST_F(Reports, ConfigurationsAreToldOnceWhereTheyAreTheSame) {
  finish("a", "recall", "", 1, 0.25);
  finish("b", "recall", "", 2, 0.50);
  const Json written = report_document(gather({folder}), {}, "").at("studies").at(0).at("configurations");
  EXPECT_EQ(written.at("common"), (Json{{"train.steps", 8}}));
  EXPECT_EQ(written.at("cells").at(1).at("settings"), (Json{{"model.mixer", "b"}}));
}

TEST_F(Reports, AnArgmaxFolderIsKnownByItsLinesAndNamesItsCommand) {
  const Json config{{"mixer", "fem"},
                    {"prior", "softmax"},
                    {"seed", 0},
                    {"dim", 64},
                    {"heads", 4},
                    {"length", 128},
                    {"batch", 64},
                    {"steps", 2000},
                    {"learning_rate", 0.01},
                    {"train_examples", 200000},
                    {"validation_examples", 2000}};
  const auto add = [&](const std::string& mixer, int64_t seed, double accuracy) {
    Json own = config;
    own["mixer"] = mixer;
    own["seed"] = seed;
    append_jsonl(folder / "results.jsonl", {{"experiment", "argmax"},
                                            {"config", own},
                                            {"parameters", 12},
                                            {"validation_loss", 0.5},
                                            {"accuracy", accuracy}});
    append_jsonl(folder / "curve.jsonl", {{"config", own}, {"step", 100}, {"validation_loss", 0.7}, {"accuracy", 0.1}});
  };
  add("fem", 0, 0.5);
  add("fem", 0, 0.9);  // made again: the last counts
  add("mean", 0, 0.1);
  const Study found = study();
  EXPECT_EQ(found.kind, "fem experiment argmax");
  EXPECT_EQ(found.command, "fem experiment argmax --preset demo");
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[0].labels, (std::vector<std::string>{"fem"}));
  EXPECT_EQ(found.rows[0].measures.at(0).second.mean, 0.9);
  ASSERT_EQ(found.curves.size(), 2U);
  EXPECT_EQ(found.curves[0].measures.at("accuracy").at(100), 0.1);
}

TEST_F(Reports, CostIsTheMedianOfItsRoundsBesideThePublishedRatio) {
  const auto add = [&](int64_t round, double ms) {
    const Json forward{
        {"ms", ms}, {"attention_ms", 10}, {"peak_bytes", 30}, {"attention_peak_bytes", 20}, {"flops", 5}};
    append_jsonl(folder / "results.jsonl", {{"experiment", "cost"},
                                            {"table", "7"},
                                            {"row", "gla"},
                                            {"round", round},
                                            {"parameters", 9},
                                            {"forward", forward},
                                            {"training", forward},
                                            {"config", Json::object()},
                                            {"machine", Json::object()},
                                            {"versions", Json::object()}});
  };
  add(0, 11);
  add(1, 12);
  add(2, 40);  // somebody else's process
  const Json written = report_document(gather({folder}), {cost_claim()}, "").at("studies").at(0);
  EXPECT_EQ(written.at("title"), "What whole models cost");
  const Json& board = written.at("board");
  ASSERT_EQ(board.at("columns").size(), 4U);  // no average of times and memory
  EXPECT_EQ(board.at("columns").at(0).at("label"), "Table 7, forward");
  const Json& cells = board.at("rows").at(0).at("cells");
  EXPECT_EQ(cells.at(0).at("text"), "1.20");
  EXPECT_EQ(cells.at(0).at("published"), "1.27");  // 0.0824 s of 0.0649 s
  EXPECT_EQ(cells.at(2).at("text"), "1.50");
  EXPECT_TRUE(board.at("timed").get<bool>());
  EXPECT_EQ(written.at("details").at(0).at("measures"), (Json{{"ratio", "1.20"}, {"ms", "12.00"}}));
}

TEST_F(Reports, WhatIsNoRunIsASentence) {
  const auto gathering = [&] { gather({folder}); };
  EXPECT_TRUE(fails_with("has no results", gathering));
  EXPECT_TRUE(fails_with("nowhere is no folder", [] { gather({"nowhere"}); }));
  write(folder / "results.jsonl", "{\"colour\": \"blue\"}\n");
  EXPECT_TRUE(fails_with("results.jsonl begins with {\"colour\":\"blue\"}", gathering));
  write(folder / "results.jsonl", "{\"run\": \"a\", \"recipe\": {}, \"error\": \"e\"}\n");
  EXPECT_TRUE(fails_with("expected the result of a run with its cell, choice and seed", gathering));
  write(folder / "results.jsonl", line("a", "t", "", 1, {{"error", "e"}}).dump() + "\n" +
                                      line("b", "t", "", 1, {{"error", "e"}, {"cell", {{"y", "1"}}}}).dump() + "\n");
  EXPECT_TRUE(fails_with("expected runs of one grid", gathering));
  write(folder / "results.jsonl", "{\"experiment\": \"argmax\", \"parameters\": 1}\n");
  EXPECT_TRUE(fails_with("expected a number \"validation_loss\"", gathering));
  write(folder / "results.jsonl", "{\"text\": \"t\", \"mixer\": \"m\", \"seed\": \"x\"}\n");
  EXPECT_TRUE(fails_with("expected a number \"seed\"", gathering));
}

}  // namespace
}  // namespace fem
