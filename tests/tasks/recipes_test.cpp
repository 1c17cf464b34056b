// The recipes of configs, none of which is trained here.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/recipe.h"
#include "support/error_text.h"
#include "tasks/table.h"
#include "util/shared_files.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

std::map<std::string, int64_t> counts() {
  std::map<std::string, int64_t> counts;
  for (const fs::directory_entry& entry : fs::directory_iterator(shared_files() / "configs" / "lm")) {
    if (entry.path().extension() != ".toml") continue;
    const Recipe recipe = recipe_from_json(load_recipe(entry.path()));
    EXPECT_STREQ(recipe.task->name, "language");
    int64_t& count = counts[entry.path().stem().string()];
    for (const auto& [part, own] : recipe.task->parameters(recipe.sections)) count += own;
  }
  return counts;
}

TEST(Recipes, HaveExactlyTheseParameters) {
  const std::map<std::string, int64_t> expected{
      {"500k-attention", 543168},
      {"500k-diff-attention", 543456},
      {"500k-hyena", 541008},
      {"500k-fem-softmax", 541888},
      {"500k-gla", 545104},
      {"500k-fem-gla", 543952},
      {"500k-delta-net", 541592},
      {"500k-gated-delta-net", 543228},
      {"500k-mamba2", 541536},
      {"500k-newton", 543184},
      {"500k-newton-light", 543184},
      {"500k-linear-descent", 543168},
      {"500k-gated-descent", 543184},
      {"500k-momentum", 543176},
      {"500k-nesterov", 543180},
      {"1m-attention", 924928},
      {"1m-fem-softmax", 923008},
      {"1m-gla", 927504},
      {"1m-fem-gla", 925584},
      {"10m-attention", 10010240},
      {"10m-fem-softmax", 9979520},
      {"10m-gla", 10025640},
      {"10m-fem-gla", 9994920},
      {"340m-attention", 341197824},
      {"340m-fem-softmax", 342065664},
      {"340m-fem-gla", 340124544},
      {"340m-fem-mamba", 340736256},
      {"1.3b-attention", 1298958336},
      {"1.3b-fem-softmax", 1300686336},
      {"1.3b-fem-gla", 1296779136},
      {"1.3b-fem-mamba", 1301172480},
  };
  EXPECT_EQ(counts(), expected);
}

TEST(Recipes, OfOneSizeDifferByLessThanHalfAPercent) {
  const std::map<std::string, int64_t> all = counts();
  for (const auto& [name, count] : all) {
    const int64_t attention = all.at(name.substr(0, name.find('-')) + "-attention");
    EXPECT_LT(std::abs(static_cast<double>(count - attention)) / attention, 0.005) << name;
  }
}

using nlohmann::json;
using testing::fails_with;

TEST(Recipes, NameTheirTaskOrAreLanguageModels) {
  EXPECT_STREQ(recipe_from_json(json::object()).task->name, "language");
  EXPECT_STREQ(recipe_from_json({{"task", "argmax"}}).task->name, "argmax");
  EXPECT_TRUE(fails_with(
      "expected task to be one of \"language\", \"argmax\", \"mad\", \"forecast\", \"images\", got \"chess\"",
      [] { recipe_from_json({{"task", "chess"}}); }));
}

TEST(Recipes, WithAVocabularyNeedItsTokenizerNamed) {
  for (const char* name : {"340m-fem-softmax", "1.3b-attention"}) {
    json recipe = load_recipe(find_recipe(name));
    recipe["data"]["train"] = {"absent.txt"};
    EXPECT_TRUE(
        fails_with("model.vocab_size of 32,000 needs the tokenizer it is meant for, and none is named; add "
                   "--tokenizer FILE.model",
                   [&] { recipe_from_json(recipe).make(); }));
    recipe["data"]["tokenizer"] = "bytes";  // whoever says so gets it
    EXPECT_TRUE(fails_with("absent.txt cannot be read", [&] { recipe_from_json(recipe).make(); }));
  }
}

TEST(Recipes, AreFoundByName) {
  EXPECT_EQ(find_recipe("1m-gla"), shared_files() / "configs" / "lm" / "1m-gla.toml");
  EXPECT_EQ(find_recipe("argmax/paper"), shared_files() / "configs" / "argmax" / "paper.toml");
  EXPECT_EQ(find_recipe("1m-gla.toml", "nowhere"), shared_files() / "configs" / "lm" / "1m-gla.toml");
  EXPECT_TRUE(fails_with("500k-attention, 500k-delta-net", [] { find_recipe("nothing"); }));
}

TEST(Recipes, UnknownAndImpossibleValuesAreRefused) {
  const auto reading = [](const json& in) {
    return [in] {
      const Recipe recipe = recipe_from_json(in);
      recipe.task->parameters(recipe.sections);
    };
  };
  EXPECT_TRUE(fails_with("recipe: unknown field \"trian\"", reading({{"trian", {{"steps", 1}}}})));
  EXPECT_TRUE(fails_with("train: unknown field \"step\"", reading({{"train", {{"step", 1}}}})));
  EXPECT_TRUE(fails_with("train: unknown field \"length\"", reading({{"train", {{"length", 1}}}})));
  EXPECT_TRUE(fails_with("expected steps to be an integer", reading({{"train", {{"steps", "many"}}}})));
  EXPECT_TRUE(fails_with("expected batch of at least 1", reading({{"train", {{"batch", 0}}}})));
  EXPECT_TRUE(fails_with("data: expected length of at least 1, got 0", reading({{"data", {{"length", 0}}}})));
  EXPECT_TRUE(fails_with("data: expected length of at most", reading({{"data", {{"length", INT64_MAX}}}})));
  for (const char* name : {"steps", "batch", "timeout_seconds"})
    EXPECT_TRUE(fails_with(std::string("expected ") + name + " of at most", reading({{"train", {{name, INT64_MAX}}}})));
  for (const char* name : {"train_examples", "validation_examples", "length"})
    EXPECT_TRUE(fails_with(std::string("expected ") + name + " of at most",
                           reading({{"task", "argmax"}, {"data", {{name, INT64_MAX}}}})));
  EXPECT_TRUE(fails_with("expected dim of at most", reading({{"task", "argmax"}, {"model", {{"dim", INT64_MAX}}}})));
  EXPECT_TRUE(fails_with("data: unknown field \"tokeniser\"", reading({{"data", {{"tokeniser", "bytes"}}}})));
  EXPECT_TRUE(fails_with("mixer.n_embd follows the model's", reading({{"model", {{"mixer", {{"n_embd", 8}}}}}})));
  EXPECT_TRUE(fails_with("unknown field \"prior\"", reading({{"model", {{"mixer", {{"prior", "gla"}}}}}})));
  const auto argmax = [&](const json& model, const json& data) {
    return reading({{"task", "argmax"}, {"model", model}, {"data", data}});
  };
  EXPECT_TRUE(fails_with("model: unknown field \"width\"", argmax({{"width", 8}}, json::object())));
  EXPECT_TRUE(fails_with("data: unknown field \"train\"", argmax(json::object(), {{"train", "a.txt"}})));
  EXPECT_TRUE(
      fails_with("expected dim divisible by heads, got 8 and 3", argmax({{"dim", 8}, {"heads", 3}}, json::object())));
}

}  // namespace
}  // namespace fem
