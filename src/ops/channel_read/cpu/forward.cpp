// The read of every token, and the states from which backward starts.
#include "ops/channel_read/cpu/recurrence.h"

namespace fem::channel_kernels {
namespace {

struct alignas(64) ReadColumns {
  Columns mean, free_energy, log_normalizer;
};

template <typename P>
void read_chunk(const Chunk& c, Floats beta, bool strict, int vector, ReadColumns& out) {
  for (int64_t t = 0; t < c.count; ++t) {
    const int64_t at = t * kLanes;
    const Sums sums = sums_seen<P>(c, t, strict);
    Floats scale = P::kWeights ? load(c.scale + at + (strict ? 0 : kLanes)) : Floats{};
    if constexpr (P::kDecays)
      if (strict && !c.masked(t)) scale += load(c.log_decay + at);
    store(out.mean[vector] + at, mean_of(sums));
    if constexpr (P::kBeta) store(out.free_energy[vector] + at, free_energy_of(sums, beta));
    store(out.log_normalizer[vector] + at, log_normalizer_of(sums) + scale);
  }
}

// All groups go through a chunk before the next one begins, so that memory is read and written in long runs.
template <typename P>
float read_segment(const Forward& a, const Segment& segment, Groups groups, const float* before, float* after,
                   float* scratch) {
  typedef State States[kVectors];
  static_assert(sizeof(States) == kStateFloats * kChannels * sizeof(float));
  auto* states = reinterpret_cast<States*>(scratch);
  InputColumns in;
  ReadColumns out;
  Chunk chunk;
  Floats largest{};
  for_vectors_of(a, segment, groups,
                 [&](int64_t g, int i, const Place& at) { states[g][i] = load_state<P>(a, before, at); });
  for (int64_t index = 0; index < chunk_count(segment, kChunk); ++index)
    for (int64_t g = groups.begin; g < groups.end; ++g) {
      const Item item = item_of(a, segment, g);
      const Tokens tokens = chunk_of(segment, index, kChunk);
      gather_inputs<P>(a, item, tokens, in);
      for (int i = 0; i < item.vectors(); ++i) {
        const Place at = item.place(a, i);
        const Floats beta = beta_of<P>(a, at);
        State& state = states[g - groups.begin][i];
        store_state<P>(a, checkpoint(a, segment, index), at, state);
        chunk.choose(a, tokens, in, i);
        largest = max(replay<P>(chunk, beta, state), largest);
        read_chunk<P>(chunk, beta, a.strict, i, out);
      }
      scatter(a, out.mean, item, tokens, a.mean);
      if constexpr (P::kBeta) scatter(a, out.free_energy, item, tokens, a.free_energy);
      scatter(a, out.log_normalizer, item, tokens, a.log_normalizer);
    }
  if (after)
    for_vectors_of(a, segment, groups,
                   [&](int64_t g, int i, const Place& at) { store_state<P>(a, after, at, states[g][i]); });
  return max(largest);
}

template <typename P>
void advance_item(const Forward& a, const Item& item, const float* before, float* after, float* log_decay) {
  InputColumns in;
  Chunk chunk;
  State states[kVectors];
  Sum log_decays[kVectors] = {};
  for (int i = 0; i < item.vectors(); ++i) states[i] = load_state<P>(a, before, item.place(a, i));
  for (int64_t index = 0; index < chunk_count(item.segment, kChunk); ++index) {
    const Tokens tokens = chunk_of(item.segment, index, kChunk);
    gather_inputs<P>(a, item, tokens, in);
    for (int i = 0; i < item.vectors(); ++i) {
      chunk.choose(a, tokens, in, i);
      replay<P>(chunk, beta_of<P>(a, item.place(a, i)), states[i]);
      for (int64_t t = 0; P::kDecays && t < chunk.count; ++t)
        // Finite, so that the sum has no NaN; nothing is left of what it decays.
        if (!chunk.masked(t)) log_decays[i].add(max(load(chunk.log_decay + t * kLanes), splat(-1e30f)));
    }
  }
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    store_state<P>(a, after, at, states[i]);
    store_lanes(log_decay + at.channel, log_decays[i].high, at.lanes);
    store_lanes(log_decay + a.channels() + at.channel, log_decays[i].low, at.lanes);
  }
}

}  // namespace

namespace FEM_ISA {

float forward(const Forward& a, const Segment& segment, Groups groups, const float* before, float* after,
              float* scratch) {
  float largest = 0;
  with_prior(a,
             [&](auto prior) { largest = read_segment<decltype(prior)>(a, segment, groups, before, after, scratch); });
  return largest;
}

void advance(const Forward& a, const Segment& segment, Groups groups, const float* before, float* after,
             float* log_decay) {
  with_prior(a, [&](auto prior) {
    for (int64_t g = groups.begin; g < groups.end; ++g)
      advance_item<decltype(prior)>(a, item_of(a, segment, g), before, after, log_decay);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::channel_kernels
