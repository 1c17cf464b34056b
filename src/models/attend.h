// What mixers of attention are made of: projections, rotary positions, heads, torch's fused kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fem/backbone.h"
#include "models/token_mixer.h"
#include "priors/keys_and_values.h"

namespace fem {

struct AttentionWeights {
  LinearWeights query, key, value, output;  // [D, D] each
};

void declare_attention(std::vector<ParameterSpec>& specs, const MixerOptions& options);
// On the first of a layer's weights, as declared.
AttentionWeights attention_weights(const std::vector<at::Tensor>& weights, const MixerOptions& options);

// Queries and keys [B, T, M H, K], values [B, T, H, V], K <= V: M maps one after the other, which read the same values.
struct Heads {
  at::Tensor query, key, value;
};

// Projected and, if the options say so, rotated; V = D/H, K = V/M.
Heads heads_of(const MixerInput& in, const AttentionWeights& w, const MixerOptions& options, int64_t maps,
               const Batch& batch, const MixerState* state);

// softmax(q k^T / sqrt(K)) v, [B, T, M H, V]: of the tokens of the batch, its padding and its borders, and with a
// state, which is causal, of those that it has seen as well. The state remembers key and value
// (priors/keys_and_values.h).
at::Tensor attend(const Heads& h, const Batch& batch, bool causal, MixerState* state, const char* who);

// Keys and values of the batch, after those of a state, which then remembers these as well; and which are real.
KeysAndValues keys_and_values(const Heads& h, const Batch& batch, MixerState* state);

// What a state holds: keys, and values of so many channels a head.
Memory attention_memory(const std::string& who, const MixerOptions& options, int64_t value_width, at::ScalarType dtype);

// n_embd, n_head and the mixer table fit attention of one map.
void check_attention_options(const BackboneOptions& options, const char* who);

// Of mixers that look at a curvature: attention's parameters and a scale c [H], from 0 on; and alpha = c / sqrt(K), in
// the heads' dtype.
std::vector<ParameterSpec> curved_attention_parameters(const MixerOptions& options);
at::Tensor curvature_scale(const at::Tensor& c, const Heads& h);

// A mixer whose weights on tokens are softmax(q k^T / sqrt(K)) of one map, whatever it makes of them. Its first weights
// are attention's.
class OneMapMixer : public TokenMixer {
 public:
  bool queries_apart(const BackboneOptions&) const override { return true; }
  QueryAndKey queries_and_keys(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                               const MixerInput& in) const override;
  Inspection inspect(const BackboneOptions& options, const std::vector<at::Tensor>& weights, const MixerInput& in,
                     const Batch& batch, const std::vector<int64_t>& positions) const override;
};

}  // namespace fem
