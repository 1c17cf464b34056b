// What the paper says, from a file.
#include "report/claim.h"

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

class Claims : public testing::TemporaryFolder {};

TEST_F(Claims, AreReadStrictly) {
  const auto reading = [&](const std::string& text) {
    return [this, text] {
      write(folder / "claim.toml", text);
      load_claim(folder / "claim.toml");
    };
  };
  const std::string start = "row_axis = \"mixer\"\nmeasure = \"loss\"\n";
  EXPECT_TRUE(fails_with("expected row_axis and measure", reading("title = \"x\"\n")));
  EXPECT_TRUE(fails_with("unknown field \"colour\"", reading(start + "colour = 1\n")));
  EXPECT_TRUE(
      fails_with("expected 1 published figures of a", reading(start + "[[row]]\nlabel = \"a\"\npublished = [1, 2]\n")));
  EXPECT_TRUE(
      fails_with("expected a published figure", reading(start + "[[row]]\nlabel = \"a\"\npublished = [\"x\"]\n")));
  EXPECT_TRUE(fails_with("expected a step between every two rungs",
                         reading(start + "[[ladder]]\nrungs = [\"a\", \"b\"]\nsteps = []\n")));
}

}  // namespace
}  // namespace fem
