// A causal convolution of every channel by a filter as long as the text, made by a small network.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fem/mixer.h"
#include "models/causal_tokens.h"

namespace fem {

// h_c(t) = window_c(t) (W_output sin(W_hidden sin(W_features z(t) + b) + b'))_c for the t-th token back.
//   z(t)       cosine and sine of t at periods 4, 16, .. 4096 tokens
//   window_c   exp(-t / tau_c), tau from 2 tokens in the first channel to 2048 in the last, of 2-norm 1
// Nothing depends on the length of the text: the filter of a part is the beginning of the filter of the whole.
struct FilterWeights {
  LinearWeights features, hidden;  // [M, 12], [M, M]
  at::Tensor output;               // [C, M]
};

void declare_filter(std::vector<ParameterSpec>& specs, int64_t channels, int64_t hidden);

at::Tensor long_filter(const FilterWeights& w, const c10::SymInt& length);  // [T, C]

// y_t = sum_{s <= t} h(t - s) u_s of every sequence: u [B, T, C], real tokens first. After the tokens of a state, which
// then remembers these.
at::Tensor long_convolution(const at::Tensor& u, const FilterWeights& w, const CausalTokens& tokens, const Batch& batch,
                            MixerState* state);

// What the state remembers of that: every u.
MemoryPart long_convolution_memory(int64_t channels, at::ScalarType dtype);

}  // namespace fem
