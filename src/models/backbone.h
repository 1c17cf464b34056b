#pragma once

#include <vector>

#include "fem/backbone.h"
#include "models/block.h"

namespace fem {

// Blocks and the norm after them as a function, bound to weights that somebody else holds.
class BoundBackbone {
 public:
  // weights in the order of backbone_parameters(options).
  BoundBackbone(const BackboneOptions& options, const std::vector<at::Tensor>& weights);

  // How a call is made.
  struct Call {
    Batch batch = {};
    BackboneState* state = nullptr;
    bool training = false;
    bool recompute = false;
    Trace* trace = nullptr;  // takes what is made
  };
  at::Tensor operator()(const at::Tensor& x, const Call& call) const;  // norm(blocks(x, call))
  at::Tensor blocks(const at::Tensor& x, const Call& call) const;
  at::Tensor norm(const at::Tensor& x) const;

 private:
  at::Tensor run(const at::Tensor& x, const Call& call) const;
  void check(const at::Tensor& x, const Call& call) const;

  const BackboneOptions options_;
  std::vector<Block> blocks_;
  at::Tensor norm_;
};

// What a trace has under a name; undefined if there is nothing.
at::Tensor found(const Trace& trace, const std::string& name);

void check_backbone(const BackboneOptions& options, const char* who);

// Options with the mixer's n_embd and n_head, and checked; who complains.
template <typename Options>
Options completed(Options options, const char* who) {
  if (options.mixer.n_embd == 0) options.mixer.n_embd = options.n_embd;
  if (options.mixer.n_head == 0) options.mixer.n_head = options.n_head;
  check_backbone(options, who);
  return options;
}

}  // namespace fem
