#include "io/json.h"

#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"
#include "io/toml.h"
#include "support/error_text.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

constexpr int kBomb = 66'000;  // levels that overflow a stack of 8 MB when such a value is printed

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string nested_lists(int levels) { return repeated("[", levels) + repeated("]", levels); }

class JsonFromOutside : public testing::TemporaryFolder {};

TEST_F(JsonFromOutside, GoesSixtyFourLevelsDownAndNoFurther) {
  EXPECT_EQ(parse_json(nested_lists(kDeepestJson), "a").dump(), nested_lists(kDeepestJson));
  EXPECT_TRUE(fails_with("a: expected JSON of at most 64 levels", [] { parse_json(nested_lists(65), "a"); }));
  EXPECT_TRUE(fails_with("of at most 64 levels", [] { parse_json(nested_lists(kBomb), "a"); }));
  EXPECT_TRUE(fails_with("of at most 64 levels", [] { parse_json(repeated("[", kBomb), "a"); }));
  const std::string objects = repeated("{\"a\":", kBomb) + "1" + repeated("}", kBomb);
  EXPECT_TRUE(fails_with("of at most 64 levels", [&] { parse_json(objects, "a"); }));
  EXPECT_TRUE(fails_with("of at most 64 levels", [&] { parse_json<nlohmann::ordered_json>(objects, "a"); }));
}

TEST_F(JsonFromOutside, IsRefusedWithItsPlace) {
  const auto parse = [](const std::string& text) { return [=] { parse_json(text, "file"); }; };
  EXPECT_TRUE(fails_with("file: expected JSON, but line 2, column 6", parse("{\"a\": 1,\n\"b\": }")));
  EXPECT_TRUE(fails_with("file: expected JSON, but line 1, column 1", parse("")));
  EXPECT_TRUE(fails_with("file: expected JSON, but number overflow", parse("[1e999]")));
  EXPECT_TRUE(fails_with("ill-formed UTF-8", parse("\"\xff\"")));
  EXPECT_TRUE(fails_with("file: key \"a\" appears twice", parse("{\"b\": {\"a\": 1, \"a\": 2}}")));
  EXPECT_EQ(parse_json("[{\"a\": 1}, {\"a\": 2}]", "file").size(), 2U);
}

TEST_F(JsonFromOutside, ReasonsAreShortWhateverWasRead) {
  try {
    parse_json("\"" + std::string(1'000'000, 'a') + "\n\"", "file");
    FAIL() << "a line's end inside a text was accepted";
  } catch (const c10::Error& error) {
    EXPECT_LT(std::string(error.what_without_backtrace()).size(), 300U);
  }
}

TEST_F(JsonFromOutside, ALineCutShortIsNothing) {
  EXPECT_FALSE(json_if_whole("{\"a\": "));
  EXPECT_FALSE(json_if_whole(nested_lists(kBomb)));
  EXPECT_EQ(json_if_whole("{\"a\": 1}"), (json{{"a", 1}}));
}

TEST_F(JsonFromOutside, FilesAreBounded) {
  write(folder / "a.json", "{\"a\": 1}");
  EXPECT_EQ(read_json(folder / "a.json", "who"), (json{{"a", 1}}));
  write(folder / "large.json", "[" + std::string(17 << 20, ' ') + "]");
  EXPECT_TRUE(fails_with("expected at most 16777216", [&] { read_json(folder / "large.json", "who"); }));
  EXPECT_TRUE(fails_with("it is not a file", [&] { read_json(folder, "who"); }));
  EXPECT_TRUE(fails_with("No such file", [&] { read_json(folder / "none", "who"); }));
}

TEST_F(JsonFromOutside, FieldsHaveTheTypeThatIsAskedFor) {
  const json object{{"a", 1}, {"b", "x"}, {"c", 1.5}, {"d", 18446744073709551615U}};
  EXPECT_EQ(integer_in(object, "a", "who"), 1);
  EXPECT_EQ(number_in(object, "c", "who"), 1.5);
  EXPECT_TRUE(fails_with("who: expected \"b\" to be an integer, got \"x\"", [&] { integer_in(object, "b", "who"); }));
  EXPECT_TRUE(fails_with("to be an integer, got 1.5", [&] { integer_in(object, "c", "who"); }));
  EXPECT_TRUE(fails_with("to be an integer, got 184467", [&] { integer_in(object, "d", "who"); }));
  EXPECT_TRUE(fails_with("who: expected \"b\" to be a number", [&] { number_in(object, "b", "who"); }));
  EXPECT_TRUE(fails_with("who: expected an object with \"e\"", [&] { number_in(object, "e", "who"); }));
  EXPECT_TRUE(fails_with("who: expected an object with \"e\", got 5", [&] { number_in(json(5), "e", "who"); }));
}

TEST(TomlFromOutside, KeysAndBracketsAreBounded) {
  const auto parse = [](const std::string& text) { return [=] { parse_toml(text, "a.toml"); }; };
  const std::string deep = "a.toml, line 2: expected at most 16 levels";
  EXPECT_TRUE(fails_with(deep, parse("x = 1\n" + repeated("a.", kBomb) + "a = 1")));
  EXPECT_TRUE(fails_with(deep, parse("x = 1\n[" + repeated("a.", kBomb) + "a]\nb = 1")));
  EXPECT_TRUE(fails_with(deep, parse("x = 1\n" + repeated("\"a\" . ", kBomb) + "a = 1")));
  EXPECT_TRUE(fails_with(deep, parse("x = 1\ny = " + repeated("[", kBomb) + repeated("]", kBomb))));
  EXPECT_TRUE(fails_with(deep, parse("x = 1\ny = " + repeated("{a = ", kBomb) + "1" + repeated("}", kBomb))));
  // Behind a text that only seems to end.
  EXPECT_TRUE(fails_with(deep, parse("x = \"\\\"#\"\n" + repeated("a.", kBomb) + "a = 1")));
}

TEST(TomlFromOutside, WhatIsNoKeyMayHaveAnyNumberOfDots) {
  const std::string dots(1000, '.');
  const json expected{{"a", dots}, {"b", {0.5, 0.25, dots}}, {"c", dots + "\n" + dots}};
  EXPECT_EQ(parse_toml("# " + dots + "\na = '" + dots + "' # " + dots + "\nb = [0.5, 0.25, \"" + dots +
                           "\"]\nc = \"\"\"" + dots + "\n" + dots + "\"\"\"\n",
                       "a"),
            expected);
  const std::string floats = "[" + repeated("0.5, ", 500) + "0.5]";
  EXPECT_EQ(parse_toml("a = " + floats, "a")["a"].size(), 501U);
}

TEST(TomlFromOutside, NumbersAreFinite) {
  for (const char* value : {"inf", "-inf", "nan"})
    EXPECT_TRUE(fails_with("line 1: expected text, finite numbers",
                           [&] { parse_toml(std::string("a = ") + value, "a.toml"); }));
}

}  // namespace
}  // namespace fem
