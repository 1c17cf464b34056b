// The interface of a selection prior p_t(i). A new one is a file in this folder and a line in table.cpp.
#pragma once

#include <optional>
#include <vector>

#include "fem/mixer.h"
#include "fem/ops/read.h"
#include "priors/dialect.h"
#include "priors/memory.h"
#include "priors/part.h"

namespace fem {

// What a prior sees of one call of the layer.
struct PriorCall {
  const AppliedParts& parts;       // found by name
  at::Tensor value;                // [B, T, H, V], clipped if there is a beta
  std::optional<at::Tensor> beta;  // [H, V]; none: only the mean is wanted
  at::Tensor positions;            // [T] or [B, T]
  const MixerOptions& options;
  const MixerSizes& sizes;
  const Batch& batch;
  MixerState* state;  // may be null; the prior advances what it declares in memory()

  // A projection, modulated: [B, T, H, *]
  at::Tensor by_head(const PartName& name, const AfterModulation& after = {}) const {
    return parts[name].by_head(options.n_head, after);
  }
  const at::Tensor& parameter(const PartName& name) const { return parts[name].weights.weight; }

  const DialectRules& rules() const { return rules_of(options.dialect); }

  // For a prior whose state is a sum over the past: which tokens are read, and the sums of earlier calls.
  RecurrentReadOptions recurrent() const {
    RecurrentReadOptions read{options.causal, batch.mask, batch.cu_seqlens, std::nullopt};
    if (state && state->accumulators.count("sums")) read.initial = state->accumulators.at("sums");
    return read;
  }
  RecurrentRead keep_sums(RecurrentRead read) const {
    if (state) state->accumulators["sums"] = read.state;
    return read;
  }
};

class Prior {
 public:
  virtual ~Prior() = default;

  // Key width per head out of what the budget allows; 0 if there are no queries and keys.
  virtual int64_t head_key(const MixerOptions&, int64_t budget, int64_t /*head_value*/) const { return budget; }

  // Its parameters in the authors' order, and what the conditioner modulates.
  virtual std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const = 0;

  // Is the modulated value squashed by a sigmoid before it is clipped?
  virtual bool squashes_value(const MixerOptions&) const { return false; }

  // What read() keeps in a state: caches and accumulators. values: their dtype.
  virtual Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const = 0;

  // Mean and, with beta, free energy of the values under p_t.
  virtual Read read(const PriorCall& call) const = 0;

  // For looking at: log p_t(i) of the chosen t, up to a constant of each row, [B, N, H, C, T] with C = 1 if the
  // channels of a head share p, else V. Tokens that t does not see may hold anything.
  virtual at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const = 0;
};

const Prior& prior_of(PriorType type);

}  // namespace fem
