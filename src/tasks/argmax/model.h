#pragma once

#include <set>

#include "fem/mixer.h"
#include "fem/ops/read.h"
#include "tasks/argmax/options.h"
#include "train/adamw.h"

namespace fem {

// The layer that the read would be part of: values of the full width, queries and keys as wide; no positions and no
// conditioner, so all a mixer has is its prior.
MixerOptions argmax_layer(const ArgmaxOptions& options);

// A single read of the input itself at the last token: values are not projected, so all a mixer can do is choose.
//   fem:     q from the last token, k from all, then the free-energy read with learned beta and the inner gate (L, T)
//   mean:    the same prior and values, mean only
class ArgmaxModel {
 public:
  ArgmaxModel(const ArgmaxOptions& options, int64_t seed);

  at::Tensor forward(const at::Tensor& value) const;  // [B, T, D] -> [B, D]

  const NamedTensors& parameters() const { return parameters_; }
  bool decays(const std::string& name) const { return decayed_.contains(name); }
  int64_t parameter_count() const;

 private:
  at::Tensor linear(const std::string& name, const at::Tensor& x) const;

  Read read(const at::Tensor& x, const at::Tensor& value, const std::optional<at::Tensor>& beta) const;

  ArgmaxOptions options_;
  MixerOptions layer_;  // of the layer that the prior would be part of
  NamedTensors parameters_;
  std::set<std::string> decayed_;  // their names
};

}  // namespace fem
