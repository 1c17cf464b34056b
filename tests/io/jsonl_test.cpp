#include "io/jsonl.h"

#include <gtest/gtest.h>

#include "io/temporary_folder.h"

namespace fem {
namespace {

using Jsonl = testing::TemporaryFolder;

TEST_F(Jsonl, AppendsWholeLines) {
  const auto file = folder / "new" / "lines.jsonl";
  append_jsonl(file, {{"a", 1}});
  append_jsonl(file, {{"a", 2}});
  const std::vector<Json> lines = read_jsonl(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("a"), 2);
}

TEST_F(Jsonl, LineCutShortIsPassedOverAndDoesNotSpoilTheNext) {
  const auto file = folder / "lines.jsonl";
  write(file, "{\"a\":1}\n{\"a\":");
  append_jsonl(file, {{"a", 3}});
  const std::vector<Json> lines = read_jsonl(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("a"), 3);
}

TEST_F(Jsonl, MissingFileHasNoLines) { EXPECT_TRUE(read_jsonl(folder / "none.jsonl").empty()); }

}  // namespace
}  // namespace fem
