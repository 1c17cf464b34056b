// What happens between the hidden states and the output of a block's token mixer: x + y, and rules with a memory of
// earlier updates. A new one is a class in residual.cpp and a row of residual_of.
#pragma once

#include <vector>

#include "fem/backbone.h"

namespace fem {

// What goes from block to block.
struct Stream {
  at::Tensor x;         // hidden states [B, T, D]
  at::Tensor velocity;  // [B, T, D], of rules that have one: what earlier updates left; undefined before the first
};

class Residual {
 public:
  virtual ~Residual() = default;

  // Its learned coefficients, of each layer.
  virtual std::vector<ParameterSpec> parameters() const { return {}; }

  // The point at which the mixer is asked for its update; x itself unless the rule looks ahead along the velocity.
  virtual MixerInput input(const Stream& stream, const std::vector<at::Tensor>& /*coefficients*/) const {
    return stream.x;
  }

  // Has it a point of its own for the queries? Not every mixer can be asked so (TokenMixer::queries_apart).
  virtual bool queries_apart() const { return false; }

  // The stream after an update [B, T, D].
  virtual Stream step(const Stream& stream, const at::Tensor& update,
                      const std::vector<at::Tensor>& coefficients) const = 0;
};

const Residual& residual_of(const BackboneOptions& options);

}  // namespace fem
