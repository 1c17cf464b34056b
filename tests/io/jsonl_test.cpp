#include "io/jsonl.h"

#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;
using Jsonl = testing::TemporaryFolder;

TEST_F(Jsonl, AppendsWholeLines) {
  const auto file = folder / "new" / "lines.jsonl";
  append_jsonl(file, {{"a", 1}});
  append_jsonl(file, {{"a", 2}});
  const std::vector<Json> lines = read_jsonl(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("a"), 2);
}

TEST_F(Jsonl, LastLineCutShortIsPassedOverAndRemovedByTheNext) {
  const auto file = folder / "lines.jsonl";
  write(file, "{\"a\":1}\n{\"a\":");
  EXPECT_EQ(read_jsonl(file).size(), 1U);
  append_jsonl(file, {{"a", 3}});
  EXPECT_EQ(read(file), "{\"a\":1}\n{\"a\":3}\n");
}

TEST_F(Jsonl, LastLineWithoutItsEndIsKept) {
  const auto file = folder / "lines.jsonl";
  write(file, "{\"a\":1}");
  append_jsonl(file, {{"a", 2}});
  EXPECT_EQ(read(file), "{\"a\":1}\n{\"a\":2}\n");
}

TEST_F(Jsonl, FirstBadLineIsNamed) {
  const auto file = folder / "lines.jsonl";
  write(file, "{\"a\":1}\n\n{\"a\":\n{\"a\":3}\n[4]\n");
  EXPECT_TRUE(fails_with("lines.jsonl, line 3: expected a JSON object, got \"{\"a\":\"", [&] { read_jsonl(file); }));
  write(file, "{\"a\":1}\n[4]\n");
  EXPECT_TRUE(fails_with("line 2: expected a JSON object", [&] { read_jsonl(file); }));
}

TEST_F(Jsonl, MissingFileHasNoLines) { EXPECT_TRUE(read_jsonl(folder / "none.jsonl").empty()); }

}  // namespace
}  // namespace fem
