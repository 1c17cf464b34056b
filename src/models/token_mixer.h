// The interface of what mixes the tokens of a block. A new one is a file in this folder and a row in token_mixers.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fem/backbone.h"

namespace fem {

struct Inspection;   // fem/inspect.h
struct QueryAndKey;  // priors/query_key.h

// A mixer of one layer on its weights: x [B, T, D] -> y [B, T, D]. With a state, which only a streaming mixer is given,
// x continues the tokens the state has seen (mixer/streaming.h); training: dropout. Most take x alone, a tensor.
using Mix = std::function<at::Tensor(const MixerInput& in, const Batch& batch, MixerState* state, bool training)>;

class TokenMixer {
 public:
  virtual ~TokenMixer() = default;

  // Throws one clear sentence if it cannot be built so.
  virtual void check(const BackboneOptions& options) const = 0;

  // What it learns. Every layer has the same list; where it starts may depend on the layer, 0 being the first.
  virtual std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t layer) const = 0;

  // On weights in the order of parameters(). Bound once by a module, at every call by who holds the weights himself.
  virtual Mix bind(const BackboneOptions& options, int64_t layer, const std::vector<at::Tensor>& weights) const = 0;

  // Does it take curvature and rho?
  virtual bool has_curvature() const { return false; }

  // Can it continue a state?
  virtual bool streams() const { return true; }

  // Does it make its queries of MixerInput::query? If not it is never given any.
  virtual bool queries_apart(const BackboneOptions& /*options*/) const { return false; }

  // Of weights in the order of parameters(), for looking at: what its p = softmax(q.k / sqrt(K)) over all earlier
  // tokens is made of. Throws one sentence if it has no such p.
  virtual QueryAndKey queries_and_keys(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                                       const MixerInput& in) const;

  // Of the same weights: what it reads at the chosen tokens. Throws one sentence if it selects none, for want of a p.
  virtual Inspection inspect(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                             const MixerInput& in, const Batch& batch, const std::vector<int64_t>& positions) const;
};

const TokenMixer& token_mixer_of(BlockMixer mixer);

// Refuses every mixer option that is set and not taken; who: "plain attention". n_embd and n_head are always taken.
void check_taken(const MixerOptions& options, const char* who, const std::set<std::string>& taken);

}  // namespace fem
