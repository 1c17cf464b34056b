// The recipes of configs/lm, none of which is trained here.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "fem/text/tokenizer.h"
#include "io/recipe.h"
#include "train/config.h"
#include "util/shared_files.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

std::map<std::string, int64_t> counts() {
  std::map<std::string, int64_t> counts;
  for (const fs::directory_entry& entry : fs::directory_iterator(shared_files() / "configs" / "lm")) {
    if (entry.path().extension() != ".toml") continue;
    LanguageModelOptions model = train_config_from_json(load_recipe(entry.path())).model;
    if (model.vocab_size == 0) model.vocab_size = byte_tokenizer()->vocab_size();
    counts[entry.path().stem().string()] = parameter_count(language_model_parameters(model));
  }
  return counts;
}

TEST(Recipes, HaveExactlyTheseParameters) {
  const std::map<std::string, int64_t> expected{
      {"500k-attention", 543168},
      {"500k-fem-softmax", 541888},
      {"500k-gla", 545104},
      {"500k-fem-gla", 543952},
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

}  // namespace
}  // namespace fem
