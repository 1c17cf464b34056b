// Whole runs of language models, and what is left in their folders.
#include <nlohmann/json.hpp>
#include <sstream>

#include "fem/io/model_folder.h"
#include "support/error_text.h"
#include "tasks/small_language.h"
#include "train/metrics.h"
#include "train/run.h"

namespace fem {
namespace {

using testing::fails_with;

class LanguageRuns : public testing::SmallLanguage {
 protected:
  TrainResult go(const std::string& name, bool resume = false) {
    return fem::train([this](const auto& start) { return language_task(options, train, start); }, train,
                      {.out = folder / name, .resume = resume}, log);
  }

  std::ostringstream log;
};

TEST_F(LanguageRuns, AWholeRunIsTheSameInOneOrTwoParts) {
  const TrainResult whole = go("whole");
  EXPECT_TRUE(whole.finished);
  EXPECT_NE(log.str().find("parameters"), std::string::npos);

  // As after a kill: the first checkpoint alone is there, and metrics of steps that it does not know.
  std::filesystem::copy(folder / "whole", folder / "parts", std::filesystem::copy_options::recursive);
  train.keep_checkpoints = 5;
  go("long");
  std::filesystem::remove_all(folder / "parts" / "checkpoints");
  std::filesystem::create_directories(folder / "parts" / "checkpoints");
  std::filesystem::copy(folder / "long" / "checkpoints" / "step-00000002",
                        folder / "parts" / "checkpoints" / "step-00000002", std::filesystem::copy_options::recursive);
  const TrainResult parts = go("parts", true);
  EXPECT_EQ(parts.measures, whole.measures);
  EXPECT_EQ(read(model_folder(folder / "parts") / "model.safetensors"),
            read(model_folder(folder / "whole") / "model.safetensors"));
  const auto steps_of = [&](const char* run) {
    std::vector<std::pair<std::string, int64_t>> steps;
    for (const Json& line : read_jsonl(metrics_path(folder / run))) steps.emplace_back(line["kind"], line["step"]);
    return steps;
  };
  EXPECT_EQ(steps_of("parts"), steps_of("whole"));
}

TEST_F(LanguageRuns, RefusesToOverwriteARunAndToMixTwo) {
  train.steps = 2;
  go("run");
  EXPECT_TRUE(fails_with("already holds a run (step 2)", [&] { go("run"); }));
  train.learning_rate = 1e-3;
  EXPECT_TRUE(fails_with("train/learning_rate was 0.01 and is now 0.001", [&] { go("run", true); }));
  train.learning_rate = 1e-2;
  options.corpus.tokenizer = "sentencepiece:280";
  EXPECT_TRUE(fails_with("data/tokenizer was", [&] { go("run", true); }));
}

}  // namespace
}  // namespace fem
