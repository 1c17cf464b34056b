// Tasks of a few numbers, for what the trainer does whatever the task.
#pragma once

#include <ATen/ATen.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "train/task.h"

namespace fem::testing {

class SmallTask : public Task {
 public:
  explicit SmallTask(int64_t size) : weights(at::zeros({size}).set_requires_grad(true)) {}

  std::vector<TrainedParameter> parameters() override { return {{"weights", weights, /*decayed=*/false}}; }
  std::vector<NamedTensor> trace(const Rows&) override { return {{"weights", weights}}; }
  nlohmann::json recipe() const override { return {{"task", "small"}, {"model", {{"size", weights.numel()}}}}; }
  nlohmann::json identity() const override { return recipe(); }
  std::pair<std::string, int64_t> units_of_a_row() const override { return {"rows", 1}; }
  std::string description() const override { return "no data"; }

  void save(const std::filesystem::path& folder) const override {
    std::ofstream file(folder / "weights");
    file.precision(17);
    for (int64_t i = 0; i < weights.numel(); ++i) file << weights[i].item<double>() << "\n";
  }
  void load(const std::filesystem::path& folder) override {
    const at::NoGradGuard no_grad;
    std::ifstream file(folder / "weights");
    for (int64_t i = 0; i < weights.numel(); ++i) {
      double value = 0;
      file >> value;
      weights[i].fill_(value);
    }
  }

  at::Tensor weights;
};

// Rows of four targets, of which row r has r % 4 that count, each with a weight of its own: a regression.
class UnevenTask : public SmallTask {
 public:
  UnevenTask() : SmallTask(3) {
    const at::NoGradGuard no_grad;
    weights.copy_(at::tensor({0.5, -1.0, 2.0}));
  }

  // The loss of one row, given the weights, by its definition.
  static Weighted loss_of_row(const at::Tensor& weights, int64_t row) {
    Weighted loss{at::zeros({}, weights.options().requires_grad(false))};
    for (int64_t target = 0; target < row % 4; ++target) {
      const double a = std::sin(1.0 + row * 7 + target), b = std::cos(2.0 + row * 3 + target),
                   weight = 1 + 0.5 * target;
      const at::Tensor prediction = weights[0] * a + weights[1] * b + weights[2];
      loss.sum = loss.sum + weight * (prediction - a * b).square();
      loss.weight += weight;
    }
    return loss;
  }

  Weighted loss(const Rows& rows) override {
    Weighted all{0.0 * weights.sum()};  // a row without targets has a gradient, too: 0
    for (int64_t i = 0; i < rows.count; ++i) {
      const Weighted one = loss_of_row(weights, rows.first + i * rows.stride);
      all.sum = all.sum + one.sum;
      all.weight += one.weight;
    }
    return all;
  }

  NamedValues validation_sums(const ValidationPart& part) override {
    return {{"parts", 1}, {"index", static_cast<double>(part.part)}};
  }
  NamedValues measures(const NamedValues& sums) const override {
    return {{"loss", value_of(sums, "index")}, {"parts", value_of(sums, "parts")}};
  }
  Goal goal() const override { return {"loss"}; }
};

// One number that grows by the learning rate at every step, and is measured by its distance from a place on the way.
class ClimbTask : public SmallTask {
 public:
  explicit ClimbTask(double best, int64_t interrupted_row = -1)
      : SmallTask(1), best_(best), interrupted_row_(interrupted_row) {}

  Weighted loss(const Rows& rows) override {
    if (rows.first == interrupted_row_) {
      interrupted_row_ = -1;
      std::raise(SIGINT);
    }
    return {-weights.sum() * static_cast<double>(rows.count), static_cast<double>(rows.count)};
  }
  NamedValues validation_sums(const ValidationPart& part) override {
    const bool interrupted = interrupted_validation-- == 0;
    if (interrupted) std::raise(SIGINT);
    if (part.on_batch) part.on_batch(1, 2);
    if (interrupted) throw std::logic_error("a validation went on after a signal");
    return {{"distance", std::abs(weights.item<double>() - best_)}};
  }
  NamedValues measures(const NamedValues& sums) const override {
    return {{"loss", value_of(sums, "distance")}, {"nearness", -value_of(sums, "distance")}};
  }
  Goal goal() const override { return {"nearness", /*larger_is_better=*/true}; }

  int64_t interrupted_validation = -1;  // in its first batch

 private:
  const double best_;
  int64_t interrupted_row_;  // once
};

// One step leaves a weight that is not finite, although its loss and its gradient are: what an overflowing update does.
class BreakTask : public ClimbTask {
 public:
  explicit BreakTask(int64_t step) : ClimbTask(1), step_(step) {}

  Weighted loss(const Rows& rows) override {
    const at::NoGradGuard no_grad;
    if (rows.first == step_) at::Tensor(weights).fill_(std::numeric_limits<float>::infinity());
    const at::AutoGradMode grad(true);
    return {-weights.clamp(-1e6, 1e6).sum(), static_cast<double>(rows.count)};
  }

 private:
  const int64_t step_;
};

}  // namespace fem::testing
