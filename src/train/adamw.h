#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "train/task.h"

namespace fem {

using NamedTensors = std::map<std::string, at::Tensor>;

struct AdamWOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
};

// AdamW by torch's fused kernel. Updates the parameters in place.
class AdamW {
 public:
  AdamW(const std::vector<TrainedParameter>& parameters, const AdamWOptions& options);

  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  // One update; gradients in the order of the parameters.
  void step(const std::vector<at::Tensor>& gradients);

  // Both moments under "first.<name>" and "second.<name>", and "steps": all that an exact continuation needs.
  NamedTensors state() const;
  void restore(const NamedTensors& state);

 private:
  // Parameters with one weight decay, as the kernel wants them.
  struct Group {
    double weight_decay;
    std::vector<size_t> places;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, first, second, steps;
  };

  AdamWOptions options_;
  std::vector<Group> groups_;
};

}  // namespace fem
