#pragma once

#include "experiments/adamw.h"
#include "experiments/argmax/config.h"

namespace fem {

// A single read of the input itself at the last token: values are not projected, so all a mixer can do is choose.
//   fem:     q from the last token, k from all, then the free-energy read with learned beta and the inner gate (L, T)
//   softmax: the same prior and values, mean only
class ArgmaxModel {
 public:
  explicit ArgmaxModel(const ArgmaxConfig& config);

  at::Tensor forward(const at::Tensor& value) const;  // [B, T, D] -> [B, D]

  const NamedTensors& parameters() const { return parameters_; }
  int64_t parameter_count() const;

 private:
  at::Tensor linear(const std::string& name, const at::Tensor& x) const;

  ArgmaxConfig config_;
  NamedTensors parameters_;
};

}  // namespace fem
