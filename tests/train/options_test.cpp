#include "train/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/error_text.h"
#include "train/same_run.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

TEST(TrainingOptions, TheLearningRateWarmsUpAndFallsAsACosine) {
  TrainOptions options;
  options.steps = 110;
  options.warmup_steps = 10;
  options.learning_rate = 1.0;
  options.final_learning_rate = 0.2;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 10), 1.0);
  EXPECT_NEAR(learning_rate_at(options, 60), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate_at(options, 110), 0.2, 1e-12);
}

TEST(TrainingOptions, ALearningRateThatEndsWhereItBeginsNeverChanges) {
  TrainOptions options;
  options.steps = 2000;
  options.warmup_steps = 0;
  options.learning_rate = 1e-2;
  options.final_learning_rate = 1;
  for (const int64_t step : {0, 1, 777, 1999}) EXPECT_EQ(learning_rate_at(options, step), 1e-2);
}

TEST(TrainingOptions, SurviveJson) {
  TrainOptions options;
  options.patience = 7;
  options.enough = 0.5;
  options.keep_best = true;
  options.precision = Precision::kBfloat16;
  EXPECT_EQ(to_json(train_options_from_json(to_json(options))), to_json(options));
}

TEST(TrainingOptions, UnknownAndImpossibleValuesAreRefused) {
  const auto reading = [](const json& in) { return [in] { train_options_from_json(in); }; };
  EXPECT_TRUE(fails_with("train: unknown field \"step\"", reading({{"step", 1}})));
  EXPECT_TRUE(fails_with("expected steps to be an integer", reading({{"steps", "many"}})));
  EXPECT_TRUE(fails_with("expected batch of at least 1", reading({{"batch", 0}})));
  EXPECT_TRUE(fails_with("expected patience of at least 0, got -1", reading({{"patience", -1}})));
  for (const json& wish :
       {json{{"patience", 2}, {"validate_every", 0}}, json{{"keep_best", true}, {"validate_every", 0}},
        json{{"enough", 0.9}, {"validate_every", 0}}})
    EXPECT_TRUE(fails_with("patience, enough and keep_best need validations between the steps", reading(wish)));
}

TEST(TrainingOptions, OnlyWhatChangesTheModelMustStayTheSameInARun) {
  TrainOptions before, after;
  after.log_every = before.log_every + 1;
  after.patience = before.patience + 1;
  after.micro_batch = 1;
  const auto as_run = [](const TrainOptions& options) { return json{{"train", to_json(options)}}; };
  check_same_run(as_run(before), as_run(after), {});
  after.learning_rate = 1e-3;
  EXPECT_TRUE(fails_with("train/learning_rate was 0.0004 and is now 0.001; give the old value",
                         [&] { check_same_run(as_run(before), as_run(after), {}); }));
}

TEST(TrainingOptions, AFieldThatARunDidNotKnowMustHaveItsDefault) {
  const json saved{{"model", {{"width", 8}}}}, defaults{{"model", {{"width", 4}, {"residual", "plain"}}}};
  check_same_run(saved, {{"model", {{"width", 8}, {"residual", "plain"}}}}, defaults);
  EXPECT_TRUE(fails_with("model/residual was null and is now \"momentum\"", [&] {
    check_same_run(saved, {{"model", {{"width", 8}, {"residual", "momentum"}}}}, defaults);
  }));
  EXPECT_TRUE(fails_with("model/width was 8 and is now 4",
                         [&] { check_same_run(saved, {{"model", {{"width", 4}, {"residual", "plain"}}}}, defaults); }));
}

}  // namespace
}  // namespace fem
