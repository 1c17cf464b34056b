#include "train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "io/temporary_folder.h"
#include "parallel/ranks.h"
#include "support/error_text.h"
#include "train/same_run.h"
#include "train/small_tasks.h"

namespace fem {
namespace {

using testing::fails_with;
using testing::UnevenTask;
using SavedTrainer = testing::TemporaryFolder;

TrainOptions eight_rows() {
  TrainOptions options;
  options.batch = 8;
  options.warmup_steps = 0;
  options.clip = 0;
  options.weight_decay = 0;
  options.precision = Precision::kFloat32;
  return options;
}

std::shared_ptr<ProcessGroup> alone() { return ProcessGroup::connect({}, std::chrono::seconds(1)); }

struct Found {
  double loss = 0;
  at::Tensor gradient;
};

Found step_of(const TrainOptions& options, const std::shared_ptr<ProcessGroup>& group, int64_t steps = 1) {
  UnevenTask task;
  Trainer trainer(task, options, group);
  Found found;
  for (int64_t i = 0; i < steps; ++i) {
    found.loss = trainer.step().loss;
    found.gradient = trainer.gradients().at(0).clone();
  }
  return found;
}

// The mean over all targets of the step, in double, without any of the trainer's machinery.
Found by_definition() {
  const at::Tensor weights = at::tensor({0.5, -1.0, 2.0}, at::kDouble).set_requires_grad(true);
  at::Tensor sum = at::zeros({}, at::kDouble);
  double weight = 0;
  for (int64_t row = 0; row < 8; ++row) {
    const Weighted loss = UnevenTask::loss_of_row(weights, row);
    sum = sum + loss.sum;
    weight += loss.weight;
  }
  const at::Tensor mean = sum / weight;
  return {mean.item<double>(), torch::autograd::grad({mean}, {weights})[0]};
}

void expect_same(const Found& found, const Found& expected) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-6 * std::abs(expected.loss));
  EXPECT_TRUE(at::allclose(found.gradient.to(at::kDouble), expected.gradient.to(at::kDouble), 1e-6, 1e-7))
      << found.gradient << "\n"
      << expected.gradient;
}

TEST(Trainer, IgnoredTargetsWeighNothingHoweverTheRowsAreShared) {
  const Found expected = by_definition();
  for (const int64_t micro_batch : {0, 1, 2, 4}) {
    SCOPED_TRACE("micro_batch " + std::to_string(micro_batch));
    TrainOptions options = eight_rows();
    options.micro_batch = micro_batch;
    expect_same(step_of(options, alone()), expected);
    if (micro_batch == 4) continue;  // as all that one of two ranks has
    // Rank 0 has rows 0, 2, 4, 6 with 0 or 2 targets each, rank 1 those with 1 or 3.
    std::vector<Found> of_rank(2);
    testing::run_ranks(
        2, [&](const std::shared_ptr<ProcessGroup>& group) { of_rank[group->rank()] = step_of(options, group); });
    for (const Found& found : of_rank) expect_same(found, expected);
  }
}

TEST(Trainer, AMeanOfMeansWouldBeSeenByThatTest) {
  const at::Tensor weights = at::tensor({0.5, -1.0, 2.0}, at::kDouble).set_requires_grad(true);
  at::Tensor mean_of_means = at::zeros({}, at::kDouble);
  for (int64_t rank = 0; rank < 2; ++rank) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    double weight = 0;
    for (int64_t row = rank; row < 8; row += 2) {
      const Weighted loss = UnevenTask::loss_of_row(weights, row);
      sum = sum + loss.sum;
      weight += loss.weight;
    }
    mean_of_means = mean_of_means + sum / weight / 2;
  }
  const at::Tensor gradient = torch::autograd::grad({mean_of_means}, {weights})[0];
  EXPECT_GT((gradient - by_definition().gradient).abs().max().item<double>(), 1e-2);
}

TEST(Trainer, SeveralStepsAreTheSameForOneAndTwoProcesses) {
  const Found one = step_of(eight_rows(), alone(), 5);
  std::mutex mutex;
  testing::run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const Found two = step_of(eight_rows(), group, 5);
    const std::lock_guard lock(mutex);
    EXPECT_NEAR(two.loss, one.loss, 1e-5 * one.loss);
    EXPECT_TRUE(at::allclose(two.gradient, one.gradient, 1e-4, 1e-5));
  });
}

TEST(Trainer, AStepWithoutTargetsIsRefused) {
  TrainOptions options = eight_rows();
  options.batch = 1;  // row 0 has none
  EXPECT_TRUE(fails_with("step 1: expected rows with targets to learn from, got a weight of 0 for all 1 rows",
                         [&] { step_of(options, alone()); }));
}

TEST(Trainer, ClipsTheMeanGradientToTheNorm) {
  TrainOptions options = eight_rows();
  const at::Tensor free = step_of(options, alone()).gradient;
  options.clip = 0.25;
  ASSERT_GT(free.norm().item<double>(), 0.3);
  const at::Tensor clipped = step_of(options, alone()).gradient;
  EXPECT_NEAR(clipped.norm().item<double>(), 0.25, 1e-6);
  EXPECT_TRUE(at::allclose(clipped / 0.25, free / free.norm(), 1e-5));
}

TEST(Trainer, ValidationSumsAddOverTheRanks) {
  testing::run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    UnevenTask task;
    Trainer trainer(task, eight_rows(), group);
    const NamedValues measures = trainer.validate(/*whole=*/true);
    if (value_of(measures, "loss") != 1 || value_of(measures, "parts") != 2)
      throw std::runtime_error("expected the sums of both ranks");
  });
}

TEST(Trainer, NamesTheParameterThatIsNotFinite) {
  UnevenTask task;
  Trainer trainer(task, eight_rows(), alone());
  {
    const at::NoGradGuard no_grad;
    task.weights.fill_(std::numeric_limits<double>::infinity());
  }
  EXPECT_TRUE(fails_with("the first tensor that is not finite is the parameter weights", [&] { trainer.step(); }));
}

TEST_F(SavedTrainer, AllRanksGoOnFromWhatRankZeroReads) {
  UnevenTask task;
  Trainer whole(task, eight_rows(), alone());
  for (int i = 0; i < 3; ++i) whole.step();
  whole.best.observe(task.goal(), {{"loss", 0.75}}, 2);
  whole.best.observe(task.goal(), {{"loss", 0.80}}, 3);
  whole.seconds = 12.5;
  whole.save(folder);
  testing::run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    UnevenTask other;
    Trainer trainer(other, eight_rows(), group);
    trainer.load(group->rank() == 0 ? folder : std::filesystem::path());
    const Best& best = trainer.best;
    if (trainer.steps_done() != 3 || trainer.seconds != 12.5 || best.step != 2 || best.value != 0.75 ||
        best.since != 1 || best.validated != 3 || !other.weights.equal(task.weights))
      throw std::runtime_error("rank " + std::to_string(group->rank()) + " stands elsewhere");
  });
}

TEST_F(SavedTrainer, AnotherTaskIsNamedBeforeItsFields) {
  UnevenTask task;
  Trainer(task, eight_rows(), alone()).save(folder);
  testing::ClimbTask other(1);
  EXPECT_TRUE(fails_with("model/size was 3 and is now 1", [&] { Trainer(other, eight_rows(), alone()).load(folder); }));
  const nlohmann::json saved{{"task", "a"}, {"data", 1}}, now{{"task", "b"}, {"data", 2}};
  EXPECT_TRUE(fails_with("task was \"a\" and is now \"b\"", [&] { check_same_run(saved, now, {}); }));
}

}  // namespace
}  // namespace fem
