// The interface of a selection prior p_t(i). A new one is a file in this folder and a line in table.cpp.
#pragma once

#include <optional>
#include <vector>

#include "fem/mixer.h"
#include "fem/ops/modulate.h"
#include "fem/ops/read.h"
#include "priors/dialect.h"
#include "priors/memory.h"

namespace fem {

// What a prior sees of one call of the layer.
struct PriorCall {
  std::vector<at::Tensor> projected;           // x through the prior's linear layers, [B, T, *] each
  at::Tensor value;                            // [B, T, H, V], clipped if there is a beta
  std::optional<at::Tensor> beta;              // [H, V]; none: only the mean is wanted
  at::Tensor positions;                        // [T] or [B, T]
  std::vector<at::Tensor> weights;             // as declared by parameters(), after the linear layers
  const std::vector<Modulation>& modulations;  // of leading_widths(), trailing_widths(); undefined if use_conv is off
  const MixerOptions& options;
  const MixerSizes& sizes;
  const Batch& batch;
  MixerState* state;  // may be null; the prior moves on what it declares in memory()

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

  virtual std::vector<ParameterSpec> parameters(const MixerOptions& options, const MixerSizes& sizes) const = 0;

  // How many linear layers of x are the first of its parameters.
  virtual size_t linear_layers(const MixerOptions& options) const = 0;

  // Widths of what the conditioner modulates here: before the gates in its output, and after them.
  virtual std::vector<int64_t> leading_widths(const MixerOptions&, const MixerSizes&) const { return {}; }
  virtual std::vector<int64_t> trailing_widths(const MixerOptions&, const MixerSizes&) const { return {}; }

  // Is the modulated value squashed by a sigmoid before it is clipped?
  virtual bool squashes_value(const MixerOptions&) const { return false; }

  // What read() keeps in a state: caches and accumulators. values: their dtype.
  virtual Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const = 0;

  // Mean and, with beta, free energy of the values under p_t.
  virtual Read read(const PriorCall& call) const = 0;
};

const Prior& prior_of(PriorType type);

}  // namespace fem
