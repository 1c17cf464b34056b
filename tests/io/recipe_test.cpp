#include "io/recipe.h"

#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

class Recipe : public testing::TemporaryFolder {};

TEST_F(Recipe, ReadsTablesNumbersTextsAndLists) {
  write(folder / "a.toml",
        "[model]\nn_embd = 64\ntie_embeddings = false\n[data]\ntrain = ['a', 'b']\n[train]\nclip = 0.5\n");
  const json expected{{"model", {{"n_embd", 64}, {"tie_embeddings", false}}},
                      {"data", {{"train", {"a", "b"}}}},
                      {"train", {{"clip", 0.5}}}};
  EXPECT_EQ(load_recipe(folder / "a.toml"), expected);
}

TEST_F(Recipe, StartsFromItsBaseAndWins) {
  write(folder / "a.toml", "[train]\nsteps = 10\nbatch = 4\n");
  write(folder / "b.toml", "base = \"a.toml\"\n[train]\nsteps = 20\n");
  EXPECT_EQ(load_recipe(folder / "b.toml"), (json{{"train", {{"steps", 20}, {"batch", 4}}}}));
}

TEST_F(Recipe, StartsFromAShippedBase) {
  const json shipped = load_recipe(find_recipe("500k-fem-gla"));
  for (const char* base : {"500k-fem-gla.toml", "500k-fem-gla"}) {
    write(folder / "mine.toml", std::string("base = \"") + base + "\"\n[train]\nsteps = 7\n");
    json expected = shipped;
    expected["train"]["steps"] = 7;
    EXPECT_EQ(load_recipe(folder / "mine.toml"), expected);
  }
  write(folder / "500k-fem-gla.toml", "[train]\nbatch = 3\n");  // what stands beside it comes first
  write(folder / "mine.toml", "base = \"500k-fem-gla.toml\"\n");
  EXPECT_EQ(load_recipe(folder / "mine.toml"), (json{{"train", {{"batch", 3}}}}));
}

TEST_F(Recipe, NamesTheShippedOneThatWasMeant) {
  EXPECT_TRUE(fails_with("; got '500k-fem-gal'; did you mean 500k-fem-gla?", [&] { find_recipe("500k-fem-gal"); }));
  EXPECT_TRUE(fails_with("there is none at " + (folder / "a.toml").string(), [&] { find_recipe("a.toml", folder); }));
  write(folder / "mine.toml", "base = \"argmax/demos.toml\"\n");
  EXPECT_TRUE(fails_with("did you mean argmax/demo?", [&] { load_recipe(folder / "mine.toml"); }));
}

TEST_F(Recipe, SaysWhereAFileIsWrong) {
  write(folder / "a.toml", "[train]\nsteps = = 10\n");
  EXPECT_TRUE(fails_with("a.toml, line 2", [&] { load_recipe(folder / "a.toml"); }));
  EXPECT_TRUE(fails_with("there is none at", [&] { load_recipe(folder / "b.toml"); }));
  write(folder / "c.toml", "base = \"c.toml\"\n");
  EXPECT_TRUE(fails_with("starts from itself", [&] { load_recipe(folder / "c.toml"); }));
}

TEST_F(Recipe, SetsValuesByTheirPath) {
  json recipe{{"train", {{"steps", 10}}}};
  set_value(recipe, "train.steps=20");
  set_value(recipe, "train.learning_rate=3e-4");
  set_value(recipe, "model.mixer.prior_type=gla");
  set_value(recipe, "data.train=[\"a\", \"b\"]");
  set_value(recipe, "train.recompute=true");
  const json expected{{"train", {{"steps", 20}, {"learning_rate", 3e-4}, {"recompute", true}}},
                      {"model", {{"mixer", {{"prior_type", "gla"}}}}},
                      {"data", {{"train", {"a", "b"}}}}};
  EXPECT_EQ(recipe, expected);
  EXPECT_TRUE(fails_with("expected name=value", [&] { set_value(recipe, "train.steps"); }));
  EXPECT_TRUE(fails_with("a plain value stands", [&] { set_value(recipe, "train.steps.more=1"); }));
}

TEST_F(Recipe, ANameTooLongForAFileIsASentence) {
  write(folder / "own.toml", "base = \"" + std::string(5000, 'a') + ".toml\"\n");
  EXPECT_TRUE(
      testing::fails_with("expected a TOML file, but there is none at", [&] { load_recipe(folder / "own.toml"); }));
}

}  // namespace
}  // namespace fem
