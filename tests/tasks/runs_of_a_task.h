// What runs of every task must keep.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/alone.h"
#include "parallel/ranks.h"
#include "train/trainer.h"

namespace fem::testing {

using MakeOneTask = std::function<std::unique_ptr<Task>()>;

// Losses of three steps and all measures, by one process and by two.
inline void expect_two_processes_do_as_one(const MakeOneTask& make, const TrainOptions& train) {
  const auto figures = [&](const std::shared_ptr<ProcessGroup>& group) {
    // Ranks are threads here, and what a task draws when it is made comes from torch's one default generator.
    static std::mutex making;
    const std::unique_ptr<Task> task = [&] {
      const std::lock_guard one_at_a_time(making);
      return make();
    }();
    Trainer trainer(*task, train, group);
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) found.push_back(trainer.step().loss);
    for (const auto& [name, value] : trainer.validate(true)) found.push_back(value);
    return found;
  };
  const std::vector<double> one = figures(alone());
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const std::vector<double> two = figures(group);
    for (size_t i = 0; i < one.size(); ++i)
      if (std::abs(two[i] - one[i]) > 1e-4 * std::abs(one[i]))
        throw std::runtime_error("figure " + std::to_string(i) + " differs");
  });
}

// Eight steps at once, and five and three with a checkpoint between: the same files.
inline void expect_resumed_bit_for_bit(const MakeOneTask& make, const TrainOptions& train,
                                       const std::filesystem::path& folder) {
  const std::unique_ptr<Task> of_whole = make(), of_first = make(), of_second = make();
  Trainer whole(*of_whole, train, alone()), first(*of_first, train, alone()), second(*of_second, train, alone());
  for (int i = 0; i < 8; ++i) whole.step();
  for (int i = 0; i < 5; ++i) first.step();
  first.save(folder / "run");
  second.load(folder / "run");
  for (int i = 0; i < 3; ++i) second.step();
  whole.save(folder / "whole");
  second.save(folder / "second");
  const auto bytes = [&](const char* run, const char* name) {
    std::ifstream file(folder / run / name, std::ios::binary);
    EXPECT_TRUE(file.good()) << name;
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(bytes("whole", name), bytes("second", name)) << name;
}

}  // namespace fem::testing
