#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace fem::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

const Roof kRoof{{200, 20}, {100, 15}};

MixerOptions options_of(PriorType prior) {
  MixerOptions options;
  options.n_embd = 32;
  options.n_head = 2;
  options.prior_type = prior;
  return options;
}

// 10 ms against 20 ms.
Case timed(const std::string& bench, const std::string& kind, const Cost& ours, const Cost& theirs) {
  return {bench,
          kind,
          "torch sdpa layer",
          mixer_configuration(options_of(PriorType::kGla), {"S2", 32, 2, 48, 1}),
          Case::Unit::kMilliseconds,
          10,
          20,
          3,
          0.6,
          ours,
          theirs};
}

std::string table_of(const std::vector<Case>& cases) {
  std::ostringstream out;
  print_table(cases, kRoof, out);
  return out.str();
}

TEST(Report, TableHasSharesOfTheArithmeticRoof) {
  const std::string table = table_of({timed("layer", "forward", {1'000'000'000}, {800'000'000})});
  EXPECT_THAT(table, HasSubstr("GFLOP/s"));
  EXPECT_THAT(table, HasSubstr("100      50 "));
  EXPECT_THAT(table, HasSubstr(" 40      20"));
  EXPECT_THAT(table, HasSubstr("Roof: 200 GFLOP/s, 20.0 GB/s measured in this run"));
  EXPECT_THAT(table, HasSubstr("Arithmetic is the roof of forward."));
}

TEST(Report, TableOfDecodingHasSharesOfTheMemoryRoof) {
  const std::string table = table_of({timed("decode", "step", {1'000'000, 50'000'000}, {1'000'000, 300'000'000})});
  EXPECT_THAT(table, HasSubstr("GB/s"));
  EXPECT_THAT(table, HasSubstr("5.0      25 "));
  EXPECT_THAT(table, HasSubstr(" 15      75"));
  EXPECT_THAT(table, HasSubstr("Memory is the roof of step."));
}

TEST(Report, TableSaysNothingOfWhatIsNotCounted) {
  const std::string table = table_of({timed("read", "forward", {}, {})});
  EXPECT_THAT(table, Not(HasSubstr("  0 ")));
  EXPECT_THAT(table, Not(HasSubstr("is the roof of")));
}

TEST(Report, TableIsNarrow) {
  Case widest = timed("layer", "forward without C", {1'000'000'000}, {800'000'000});
  widest.configuration = mixer_configuration(options_of(PriorType::kRnnSoftmax), {"S4", 32, 2, 48, 1});
  widest.ours = 1234.56, widest.theirs = 1234.56;
  std::istringstream lines(table_of({widest}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

TEST(Report, JsonSaysWhatWasDoneHowFastAndOnWhat) {
  std::ostringstream out;
  write_json({timed("decode", "step", {1'000'000'000, 50'000'000}, {})}, kRoof, out);
  const auto line = nlohmann::json::parse(out.str());
  EXPECT_EQ(line["case"], "gla S2 step");
  EXPECT_EQ(line["flops"], 1'000'000'000);
  EXPECT_EQ(line["bytes"], 50'000'000);
  EXPECT_DOUBLE_EQ(line["gflops"], 100);
  EXPECT_DOUBLE_EQ(line["gbytes_per_s"], 5);
  EXPECT_TRUE(line["opponent_work"]["flops"].is_null());
  EXPECT_EQ(line["peak_gflops"], 200);
  EXPECT_EQ(line["peak_gbytes_per_s"], 20);
  EXPECT_EQ(line["configuration"]["shape"]["length"], 48);
  EXPECT_EQ(line["configuration"]["mixer"]["prior_type"], "gla");
  EXPECT_EQ(line["configuration"]["head_value"], 8);
  for (const char* field : {"cpu", "cores", "isa", "threads", "caches"}) EXPECT_TRUE(line["machine"].contains(field));
}

TEST(Report, JsonOfMemoryHasBytesHeldAndNoSpeed) {
  Case memory = timed("read", "memory", {}, {});
  memory.unit = Case::Unit::kBytes;
  std::ostringstream out;
  write_json({memory}, kRoof, out);
  const auto line = nlohmann::json::parse(out.str());
  EXPECT_TRUE(line["ours_ms"].is_null());
  EXPECT_EQ(line["ours_bytes"], 10);
  EXPECT_FALSE(line.contains("gflops"));
}

}  // namespace
}  // namespace fem::bench
