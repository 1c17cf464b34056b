// What a layer remembers of the tokens it has seen, declared: whether a MixerState is its own follows from this.
#pragma once

#include <ATen/OpMathType.h>

#include <optional>
#include <string>
#include <vector>

#include "fem/mixer.h"

namespace fem {

// A tensor of a state.
struct MemoryPart {
  std::string name;
  std::vector<int64_t> shape;  // after the batch; of a cache, of one token
  at::ScalarType dtype;
};

struct Memory {
  std::string layer;                      // of what is in no shape: who wrote the numbers, and by which rules
  std::vector<MemoryPart> caches;         // a row a token; which of them are real joins them with the first mask
  std::vector<MemoryPart> accumulators;   // of fixed size
  std::optional<MemoryPart> conditioner;  // its h
  std::optional<int64_t> window;          // caches reach this far back, or farther; unset: to the first token
};

// "rope 10000" or "no rope"
std::string rope_words(const MixerOptions& options);

// Sums over the past, in the precision in which they are formed from values of a dtype.
inline Memory memory_of_sums(std::vector<int64_t> shape, at::ScalarType dtype) {
  Memory memory;
  memory.accumulators = {{"sums", std::move(shape), at::toOpMathType(dtype)}};
  return memory;
}

// A scale, then sums of w (1, v, exp(beta v)) a channel, as channel_read has them.
inline Memory memory_of_channel_sums(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) {
  return memory_of_sums({options.has_free_energy() ? 4 : 3, options.n_head, sizes.head_value}, values);
}

// Sums of phi(k) (v, exp(beta v), 1), as linear_read has them.
inline Memory memory_of_linear_sums(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) {
  const int64_t columns = (options.has_free_energy() ? 2 : 1) * sizes.head_value + 1;
  return memory_of_sums({options.n_head, sizes.head_key, columns}, values);
}

// Refuses a call with a state that is not new and not this memory's, or that cannot be continued by x; who complains.
void check_continues(const char* who, const MixerState& state, const Memory& memory, const at::Tensor& x,
                     const Batch& batch);

}  // namespace fem
