#include "util/terminal.h"

#include <gtest/gtest.h>

namespace fem {
namespace {

TEST(Terminal, ShowsControlCharactersAndLeavesText) {
  EXPECT_EQ(Printable()("a\tb\nc é 漢 🙂"), "a\tb\nc é 漢 🙂");
  EXPECT_EQ(Printable()("\x1b[2J\r\a\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(Printable()(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Terminal, ShowsControlCharactersOfTwoBytes) {
  EXPECT_EQ(Printable()("\xc2\x9b"
                        "2J\xc2\xa0"),
            "\\x9b2J\xc2\xa0");
}

TEST(Terminal, ShowsBytesThatAreNoText) {
  EXPECT_EQ(Printable()("\x9b"
                        "2J\xff\xc2z\xc0\x80"),
            "\\x9b2J\\xff\\xc2z\\xc0\\x80");
}

TEST(Terminal, CharactersMayComeInParts) {
  const std::string text = "é\xc2\x9b漢\x1b🙂";
  Printable printable;
  std::string shown;
  for (const char c : text) shown += printable({&c, 1});
  EXPECT_EQ(shown, "é\\x9b漢\\x1b🙂");
  EXPECT_EQ(shown, Printable()(text));
}

}  // namespace
}  // namespace fem
