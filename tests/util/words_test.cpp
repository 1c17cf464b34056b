#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "util/nearest.h"
#include "util/shell.h"

namespace fem {
namespace {

TEST(Nearest, CountsLettersPutInLeftOutExchangedAndSwapped) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0U);
  EXPECT_EQ(edit_distance("step", "steps"), 1U);
  EXPECT_EQ(edit_distance("lerning", "learning"), 1U);
  EXPECT_EQ(edit_distance("tokeniser", "tokenizer"), 1U);
  EXPECT_EQ(edit_distance("trian", "train"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

TEST(Nearest, NamesTheNearestOrNone) {
  const std::set<std::string> known{"steps", "batch", "micro_batch", "learning_rate", "final_learning_rate"};
  EXPECT_EQ(did_you_mean("lerning_rate", known), "; did you mean learning_rate?");
  EXPECT_EQ(did_you_mean("stpes", known), "; did you mean steps?");
  EXPECT_EQ(did_you_mean("window", known), "");
  EXPECT_EQ(did_you_mean("", known), "");
  EXPECT_EQ(did_you_mean(std::string(1 << 20, 's'), known), "");
}

// What a shell makes of the word again.
std::string read_back(const std::string& word) {
  FILE* shell = ::popen(("printf %s " + word).c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(shell)) != EOF;) text += static_cast<char>(c);
  ::pclose(shell);
  return text;
}

TEST(Shell, WordsAreReadBackAsTheyWere) {
  EXPECT_EQ(shell_word("runs/book-1.2"), "runs/book-1.2");
  EXPECT_EQ(shell_word(""), "''");
  for (const std::string text : {"a b", "it's", "$HOME", "`id`", "a\nb", "\"", "*", "~", "a\\b", "#", "a;b", "é"})
    EXPECT_EQ(read_back(shell_word(text)), text);
  EXPECT_EQ(shell_command(std::vector<std::string>{"fem", "generate", "my run"}), "fem generate 'my run'");
}

}  // namespace
}  // namespace fem
