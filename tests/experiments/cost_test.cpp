// What a whole model costs: what is measured, what is counted, and what is made of the lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "experiments/cost/experiment.h"
#include "experiments/cost/flops.h"
#include "experiments/cost/published.h"
#include "fem/language_model.h"
#include "io/temporary_folder.h"
#include "models/backbone.h"
#include "support/error_text.h"
#include "util/interrupt.h"

namespace fem {
namespace {

using ::testing::HasSubstr;
using Cost = testing::TemporaryFolder;
using testing::fails_with;

TEST(CostPlan, PaperPresetIsThePublishedSize) {
  const CostPlan plan = cost_preset("paper");
  ASSERT_EQ(plan.tables.size(), 2U);
  const auto sizes = [](const CostTable& t) {
    return std::vector{t.layers, t.shape.dim, t.shape.heads, t.shape.length, t.shape.batch};
  };
  EXPECT_EQ(sizes(plan.tables[0]), (std::vector<int64_t>{8, 512, 4, 2048, 4}));
  EXPECT_EQ(sizes(plan.tables[1]), (std::vector<int64_t>{12, 768, 12, 1024, 8}));
  std::set<std::string> labels;
  for (const MixerRow& row : plan.rows) labels.insert(row.label());
  EXPECT_EQ(labels.size(), plan.rows.size());
  for (const char* row :
       {"attention", "diff_attention", "hyena", "delta_net", "gated_delta_net", "mamba2", "softmax+CLTG", "softmax+LTG",
        "gla", "gla+LTG", "gla+CLTG", "mamba", "mamba+LTG", "mamba+CLTG", "linear"})
    EXPECT_TRUE(labels.contains(row)) << row;
  check(plan);
}

// A block of attention has 12 D^2 weights, as GPT-2's: what the paper counts.
TEST(CostPlan, RowsAreAsLargeAsAttentionAndTheConditionerComesOnTop) {
  for (const CostTable& table : cost_preset("paper").tables) {
    const auto parameters = [&](const char* row) {
      return static_cast<double>(parameter_count(backbone_parameters(cost_options(mixer_row(row), table))));
    };
    const double attention = parameters("attention"), width = static_cast<double>(table.shape.dim);
    EXPECT_NEAR(attention / (static_cast<double>(table.layers) * 12 * width * width), 1, 0.003);
    for (const char* row : {"softmax", "softmax+LTG", "gla", "gla+LTG", "mamba+LTG", "linear", "hyena",
                            "diff_attention", "delta_net", "gated_delta_net", "mamba2"})
      EXPECT_NEAR(parameters(row) / attention, 1, 0.03) << row;
    EXPECT_GT(parameters("softmax+CLTG"), 1.01 * parameters("softmax+LTG"));
    EXPECT_EQ(cost_options(mixer_row("gla+CLTG"), table).mlp_width, table.mlp_width);
  }
}

TEST(CostPlan, BadPlansAreRefusedInOneSentence) {
  EXPECT_TRUE(fails_with("cost: expected preset smoke, mini or paper, got 'huge'", [] { cost_preset("huge"); }));
  EXPECT_TRUE(fails_with("got 'atention'; did you mean attention?", [] { mixer_row("atention"); }));
  EXPECT_TRUE(fails_with("letters: expected one of", [] {
    CostPlan plan = cost_preset("smoke");
    plan.rows = {mixer_row("softmax+X")};
    check(plan);
  }));
  EXPECT_TRUE(fails_with("cost: expected every row once, got attention twice", [] {
    CostPlan plan = cost_preset("smoke");
    plan.rows = {mixer_row("attention"), mixer_row("attention")};
    check(plan);
  }));
  EXPECT_TRUE(fails_with("cost: expected --rounds from 1 to 1000, got 0", [] {
    CostPlan plan = cost_preset("smoke");
    plan.rounds = 0;
    check(plan);
  }));
}

// D 8, one head, T 2, a layer with an MLP of 12: three pairs of tokens.
bench::Flops flops_of(const char* row) {
  const CostTable table{"5", 1, 12, {"", 8, 1, 2, 1}};
  return backbone_flops(cost_options(mixer_row(row), table), table.shape);
}
constexpr int64_t kMlp = 2 * 2 * (3 * 8 * 12);

TEST(CostFlops, AreThoseCountedByHand) {
  EXPECT_EQ(flops_of("attention").forward, kMlp + 2 * 2 * (4 * 8 * 8) + 3 * 2 * (8 + 8));
  EXPECT_EQ(flops_of("attention").training(), 3 * kMlp + 3 * 2 * 2 * (4 * 8 * 8) + 3 * 2 * 7 * 8);
  // Two maps with keys of 4, each over values of 8.
  EXPECT_EQ(flops_of("diff_attention").forward, kMlp + 2 * 2 * (4 * 8 * 8) + 2 * 3 * 2 * (4 + 8));
  EXPECT_EQ(flops_of("diff_attention").training(),
            3 * kMlp + 3 * 2 * 2 * (4 * 8 * 8) + 2 * 3 * 2 * (4 + 8 + 3 * 4 + 2 * 8));
  // 4 channels: projections 12 x 8 and 8 x 4, 12 x 3 taps; filter network 4 x 12, 4 x 4, 4 x 4; transforms of length 4
  // are 20 each, of u, h and the result, and 3 products of 6.
  const int64_t convolution = 4 * (3 * 20 + 3 * 6);
  EXPECT_EQ(flops_of("hyena").forward, kMlp + 2 * 2 * (96 + 32 + 36) + 2 * 2 * (48 + 16 + 16) + convolution);
  EXPECT_EQ(flops_of("hyena").backward, 2 * (flops_of("hyena").forward - convolution) + convolution);
}

TEST(CostFlops, OfMixersWithAMatrixAreThoseCountedByHand) {
  const CostTable table{"5", 1, 12, {"", 16, 2, 3, 1}};
  const auto beside = [&](const char* row) {  // besides the MLP
    const bench::Flops all = backbone_flops(cost_options(mixer_row(row), table), table.shape);
    const int64_t mlp = 2 * 3 * (3 * 16 * 12);
    return bench::Flops{all.forward - mlp, all.backward - 2 * mlp};
  };
  // delta_net: K 8, V 5; matrices 42 x 16, 2 x 16, 16 x 10 and 42 x 4 taps.
  EXPECT_EQ(beside("delta_net").forward, 2 * 3 * (672 + 32 + 160 + 168) + 3 * 2 * 3 * 2 * (8 * 5));
  const auto shapes = [&](const char* row) {
    std::map<std::string, std::vector<int64_t>> found;
    for (const ParameterSpec& spec : backbone_parameters(cost_options(mixer_row(row), table)))
      if (spec.name.starts_with("blocks.0.mixer.")) found[spec.name.substr(15)] = spec.shape;
    return found;
  };
  for (const char* row : {"delta_net", "gated_delta_net", "mamba2"}) {
    int64_t matrices = 0;
    for (const auto& [name, shape] : shapes(row)) matrices += shape.size() == 2 ? shape[0] * shape[1] : 0;
    const bool delta = row != std::string("mamba2");
    const int64_t projections = 2 * 3 * matrices, forward = beside(row).forward - projections;
    // Three tokens, two heads, three or two products of a multiply-add for each of K x V.
    const int64_t inner = shapes(row).at("output.weight")[1], value = inner / 2;
    const int64_t rows = shapes(row).at("input.weight")[0];
    const int64_t key = delta ? (rows - inner) / 4 : (rows - inner) / 2;
    EXPECT_EQ(forward, 3 * 2 * (delta ? 3 : 2) * 2 * key * value) << row;
    EXPECT_EQ(beside(row).backward, 2 * projections + forward / (delta ? 3 : 2) * (delta ? 8 : 5)) << row;
  }
}

TEST(CostFlops, OfAReadWithoutAFreeEnergyAreThoseOfAttention) {
  for (const CostTable& table : cost_preset("paper").tables) {
    const auto flops = [&](const char* row) {
      return backbone_flops(cost_options(mixer_row(row), table), table.shape);
    };
    EXPECT_EQ(flops("softmax").forward, flops("attention").forward);
    EXPECT_EQ(flops("softmax").training(), flops("attention").training());
  }
}

TEST(CostPublished, RatiosAreOfTheFiguresAsPrinted) {
  EXPECT_NEAR(published_cost("7", "softmax+CLTG")->training, 0.1853 / 0.1471, 1e-12);
  EXPECT_NEAR(published_cost("7", "gla")->forward_memory.value(), 9.95 / 4.89, 1e-12);
  EXPECT_NEAR(published_cost("5", "softmax+CLTG")->forward, 333.1 / 246.0, 1e-12);
  EXPECT_FALSE(published_cost("5", "softmax+CLTG")->forward_memory);
  EXPECT_FALSE(published_cost("5", "mamba"));
}

CostPlan tiny_cost(const std::filesystem::path& out) {
  CostPlan plan = cost_preset("smoke");
  plan.rows = {mixer_row("attention"), mixer_row("gla+CLTG")};
  plan.tables.resize(1);
  plan.out = out;
  return plan;
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST_F(Cost, MeasuresWhatIsMissingAndNothingElse) {
  const CostPlan plan = tiny_cost(folder / "out");
  const std::filesystem::path file = plan.out / "results.jsonl";
  std::ostringstream told;
  EXPECT_TRUE(run_cost(plan, told));
  EXPECT_THAT(told.str(), HasSubstr("estimated cost: about "));
  const std::vector<Json> lines = cost_lines(plan.out);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[3].at("row"), "gla+CLTG");
  EXPECT_EQ(lines[3].at("round"), 1);
  for (const char* kind : {"forward", "training"})
    EXPECT_GT(lines[3].at(kind).at("peak_bytes"), 4 * lines[3].at("parameters").get<int64_t>()) << kind;
  EXPECT_GT(lines[3].at("training").at("peak_bytes"), lines[3].at("forward").at("peak_bytes"));

  const std::string before = text_of(file);
  EXPECT_TRUE(run_cost(plan, told));
  EXPECT_EQ(text_of(file), before);
  // A crash cut the last line short: that round is measured again.
  std::filesystem::resize_file(file, before.size() - 40);
  EXPECT_TRUE(run_cost(plan, told));
  EXPECT_EQ(cost_lines(plan.out).size(), 4U);
  EXPECT_THAT(text_of(file), ::testing::StartsWith(before.substr(0, before.rfind("{\"experiment\""))));
}

TEST_F(Cost, ASignalKeepsWhatWasMeasuredAndTheSamePlanGoesOn) {
  const CostPlan plan = tiny_cost(folder / "out");
  CostPlan half = plan;
  half.rows.resize(1);
  std::ostringstream told;
  EXPECT_TRUE(run_cost(half, told));
  {
    const InterruptGuard guard;
    ASSERT_EQ(std::raise(SIGINT), 0);
    EXPECT_FALSE(run_cost(plan, told));
  }
  EXPECT_EQ(cost_lines(plan.out).size(), 2U);
  EXPECT_TRUE(run_cost(plan, told));
  EXPECT_EQ(cost_lines(plan.out).size(), 4U);
}

TEST_F(Cost, OtherMeasurementsAreNotMixedIn) {
  const CostPlan plan = tiny_cost(folder / "out");
  std::ostringstream told;
  run_cost(plan, told);
  CostPlan other = plan;
  other.tables[0].layers = 2;
  EXPECT_TRUE(
      fails_with("with other options or of another preset; give another --out", [&] { run_cost(other, told); }));
  Json line = cost_lines(plan.out).back();
  line["machine"]["cpu"] = "another";
  append_jsonl(plan.out / "results.jsonl", line);
  EXPECT_TRUE(fails_with("was measured on another machine", [&] { run_cost(plan, told); }));
  append_jsonl(plan.out / "results.jsonl", {{"row", "gla"}});
  EXPECT_TRUE(fails_with("line 6 is no measurement of this experiment", [&] { cost_lines(plan.out); }));
  EXPECT_TRUE(fails_with("cost: expected measurements in ", [&] { cost_lines(folder / "nothing"); }));
}

TEST_F(Cost, TheTableHasTheMedianOfTheRatiosOfTheRounds) {
  CostPlan plan = tiny_cost(folder / "out");
  plan.rows = {mixer_row("softmax+CLTG")};
  plan.rounds = 3;
  std::ostringstream told;
  run_cost(plan, told);
  std::vector<Json> lines = cost_lines(plan.out);
  // Ratios 2, 3 and 5, while the machine was slow in the last two rounds: the ratio of the medians would be 5.
  const double own[] = {20, 3000, 500}, attention[] = {10, 1000, 100};
  for (size_t i = 0; i < 3; ++i) {
    lines[i]["forward"]["ms"] = own[i];
    lines[i]["forward"]["attention_ms"] = attention[i];
  }
  std::ostringstream report;
  print_cost_report(lines, report);
  EXPECT_THAT(report.str(), ::testing::ContainsRegex("softmax\\+CLTG +3 +500 +96 +3\\.00 +1\\.35 "));
  EXPECT_THAT(report.str(), HasSubstr("Table 5: 1 layers x 32, 2 heads, T 24, B 2; preset smoke"));
}

}  // namespace
}  // namespace fem
