#include "train/step_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <new>
#include <sstream>

#include "support/error_text.h"
#include "train/small_tasks.h"

namespace fem {
namespace {

using testing::fails_with;

// Keeps 1,000 floats a row for backward, and 5,000 whatever the rows.
class KeepingTask : public testing::ClimbTask {
 public:
  KeepingTask() : ClimbTask(0) {}

  Weighted loss(const Rows& rows) override {
    const at::Tensor once = at::ones({5000}), each = at::ones({1000 * rows.count});
    return {(weights * once).sigmoid().sum() + (weights * each).sigmoid().sum(), static_cast<double>(rows.count)};
  }
};

TrainOptions options_of(int64_t micro_batch) {
  TrainOptions options;
  options.batch = 64;
  options.micro_batch = micro_batch;
  options.precision = Precision::kFloat32;
  return options;
}

class StepMemory : public ::testing::Test {
 protected:
  int64_t estimate(int64_t micro_batch) { return trainer_of(micro_batch).bytes_of_a_micro_batch(); }

  void check(int64_t micro_batch, const MemoryLimits& limits) {
    Trainer trainer = trainer_of(micro_batch);
    check_step_fits(trainer, options_of(micro_batch), log, limits);
  }

  Trainer trainer_of(int64_t micro_batch) {
    return {task, options_of(micro_batch), ProcessGroup::connect({}, std::chrono::seconds(1))};
  }

  KeepingTask task;
  std::ostringstream log;
};

TEST_F(StepMemory, GrowsWithTheRowsOfAMicroBatchAlone) {
  const int64_t one = estimate(1), two = estimate(2), all = estimate(64);
  EXPECT_GE(one, 6000 * 4);
  EXPECT_GE(two - one, 1000 * 4);
  EXPECT_EQ(all - two, 62 * (two - one));
}

TEST_F(StepMemory, WhatCanNeverFitIsRefusedAndWhatDoesNotFitNowIsTold) {
  const int64_t bytes = estimate(16), with_parameters = bytes + bytes_of_parameters(1);
  check(16, {with_parameters, 3 * bytes / 2 + 1});
  EXPECT_EQ(log.str(), "");
  check(16, {with_parameters, 3 * bytes / 2 - 1});
  EXPECT_NE(log.str().find("lower train.micro_batch (it is 16 rows), or set train.recompute=true"), std::string::npos)
      << log.str();
  EXPECT_TRUE(fails_with("train: a step takes at least", [&] { check(16, {with_parameters - 1, bytes}); }));
  EXPECT_TRUE(fails_with("of memory; set train.recompute=true", [&] { check(1, {1000, 1000}); }));
}

TEST_F(StepMemory, LeavesTheRunAsItWas) {
  Trainer asked = trainer_of(16);
  asked.bytes_of_a_micro_batch();
  EXPECT_EQ(asked.steps_done(), 0);
  EXPECT_EQ(asked.gradients()[0].item<float>(), 0);
  const double after = asked.step().loss;
  KeepingTask fresh;
  EXPECT_EQ(after, Trainer(fresh, options_of(16), ProcessGroup::connect({}, std::chrono::seconds(1))).step().loss);
}

TEST_F(StepMemory, ParametersThatCanNeverFitAreRefusedBeforeTheyAreMade) {
  check_parameters_fit(1000, {16000, 0});
  EXPECT_TRUE(fails_with("1,001 parameters take", [] { check_parameters_fit(1001, {16000, 16000}); }));
}

TEST_F(StepMemory, ThatCouldNotBeHadIsASentenceWithTheRemedy) {
  EXPECT_TRUE(
      fails_with("train: memory ran out; lower train.micro_batch (it is 64 rows), or set train.recompute=true",
                 [] { with_memory_remedy(options_of(0), 64, [] { at::empty({int64_t{1} << 60}, at::kByte); }); }));
  EXPECT_TRUE(fails_with("train: memory ran out",
                         [] { with_memory_remedy(options_of(4), 4, [] { throw std::bad_alloc(); }); }));
  EXPECT_THROW(with_memory_remedy(options_of(4), 4, [] { throw std::logic_error("else"); }), std::logic_error);
}

}  // namespace
}  // namespace fem
