// What delta_net, gated_delta_net and mamba2 have in common: heads that remember in a matrix S [K, V],
//   S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T     o_t = q_t S_t          with the delta rule
//   S_t = a_t S_{t-1} + k_t v_t^T                             o_t = q_t S_t          without
#pragma once

#include <functional>

#include "models/causal_tokens.h"
#include "models/token_mixer.h"

namespace fem {

struct MatrixInputs {
  at::Tensor query, key;  // [B, T, H or 1, K]
  at::Tensor value;       // [B, T, H, V]
  at::Tensor strength;    // [B, T, H] b, with the delta rule: keys of at most unit length, b from 0 to 1
  at::Tensor log_decay;   // [B, T, H] log a, at most 0; undefined: nothing decays
};

// The reads o [B, T, H, V], in float32 of bfloat16 inputs, after the tokens of a state, which then remembers these.
at::Tensor read_matrix_state(const MatrixInputs& in, const CausalTokens& tokens, MixerState* state);

// log a = -exp(A_log) step, [B, T, H], of steps that are not negative and A_log [H].
at::Tensor log_decay_of(const at::Tensor& step, const at::Tensor& A_log);

// softplus(logit + bias), in float32 of bfloat16.
at::Tensor step_of(const at::Tensor& logit, const at::Tensor& bias);

// Queries and keys, each over its length sqrt(q.q + 1e-6), and values, from what stands side by side, [B, T, H (2 K +
// V)].
MatrixInputs delta_inputs(const at::Tensor& convolved, int64_t heads, int64_t key_width);

constexpr int64_t kConvolutionWidth = 4;

// How these mixers declare what they learn.
ParameterSpec convolution_spec(int64_t channels);
ParameterSpec decay_rate_spec(int64_t heads);  // A_log
ParameterSpec step_bias_spec(std::string name, int64_t heads);

// Sets a width, in which the number of parameters is linear, to where that is nearest to 4 D^2, attention's.
void match_attention(const BackboneOptions& options, int64_t& width,
                     const std::function<std::vector<ParameterSpec>()>& parameters);

// Refuses what none of them has: options of other mixers, encoders.
void check_recurrent(const BackboneOptions& options, const char* who, std::set<std::string> taken = {});

// The layer, given what it does with the moved tokens: x [B, T, D] -> y [B, T, D]. matrix: the shape of a row's state;
// channels: those of its convolution, if it has one.
using CausalMix = std::function<at::Tensor(const at::Tensor& x, const CausalTokens& tokens, MixerState* state)>;
Mix causal_mix(const char* who, std::vector<int64_t> matrix, int64_t channels, CausalMix mix);

}  // namespace fem
