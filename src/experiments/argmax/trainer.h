#pragma once

#include <filesystem>

#include "experiments/argmax/config.h"
#include "experiments/argmax/model.h"
#include "train/adamw.h"

namespace fem {

struct ArgmaxPoint {
  int64_t step = 0;
  double validation_loss = 0;
  double accuracy = 0;
};

// Trains one model step by step. Everything it does is a function of the configuration and the step.
class ArgmaxTrainer {
 public:
  explicit ArgmaxTrainer(const ArgmaxConfig& config);

  double step();  // one update; returns the training loss
  ArgmaxPoint evaluate() const;

  int64_t steps_done() const { return optimizer_.steps(); }
  int64_t parameter_count() const { return model_.parameter_count(); }

  // Parameters, AdamW's state and the seconds spent so far, replaced as a whole.
  void save(const std::filesystem::path& path, double seconds) const;
  // Continues from a checkpoint of the same configuration; returns the seconds spent before.
  double load(const std::filesystem::path& path);

 private:
  ArgmaxConfig config_;
  ArgmaxModel model_;
  AdamW optimizer_;
};

}  // namespace fem
