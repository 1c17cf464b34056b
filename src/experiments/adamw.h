#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace fem {

using NamedTensors = std::map<std::string, at::Tensor>;

// AdamW by torch's fused kernel, with torch's default hyper-parameters. Updates the parameters in place.
class AdamW {
 public:
  AdamW(const NamedTensors& parameters, double learning_rate, double weight_decay = 0.01);

  // One update; gradients in the order of the parameters' names.
  void step(const std::vector<at::Tensor>& gradients);

  int64_t steps() const;
  // Both moments under "first.<name>" and "second.<name>", and "steps": all that an exact continuation needs.
  NamedTensors state() const;
  void restore(const NamedTensors& state);

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, first_, second_, steps_;
  double learning_rate_, weight_decay_;
};

}  // namespace fem
