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

template <typename P>
void forward_items(const Forward& a, int64_t begin, int64_t end, float* scratch) {
  typedef State States[kVectors];
  static_assert(sizeof(States) == kStateFloats * kChannels * sizeof(float));
  auto* states = reinterpret_cast<States*>(scratch);
  InputColumns in;
  ReadColumns out;
  Chunk chunk;
  for_shares(a, begin, end, [&](const Share& share) {
    const Segment& segment = a.segments[share.segment];
    for (int64_t g = 0; g < share.groups(); ++g) {
      const Item item = share.item(a, g);
      for (int i = 0; i < item.vectors(); ++i) states[g][i] = first_state<P>(a, segment, item.place(a, i));
      a.largest[item.index] = 0;
    }
    for (int64_t index = 0; index < chunks_of(segment); ++index)
      for (int64_t g = 0; g < share.groups(); ++g) {
        const Item item = share.item(a, g);
        const Tokens tokens = chunk_of(segment, index);
        gather_inputs<P>(a, item, tokens, in);
        Floats largest = splat(a.largest[item.index]);
        for (int i = 0; i < item.vectors(); ++i) {
          const Place at = item.place(a, i);
          const Floats beta = beta_of<P>(a, at);
          store_state<P>(a, a.checkpoints, segment.checkpoint + index, at, states[g][i]);
          chunk.choose(a, item, tokens, in, i);
          largest = max(replay<P>(chunk, beta, states[g][i]), largest);
          read_chunk<P>(chunk, beta, a.strict, i, out);
        }
        a.largest[item.index] = max(largest);
        scatter(a, out.mean, item, tokens, a.mean);
        if constexpr (P::kBeta) scatter(a, out.free_energy, item, tokens, a.free_energy);
        scatter(a, out.log_normalizer, item, tokens, a.log_normalizer);
      }
    for (int64_t g = 0; segment.last && g < share.groups(); ++g) {
      const Item item = share.item(a, g);
      for (int i = 0; i < item.vectors(); ++i)
        store_state<P>(a, a.state, segment.sequence, item.place(a, i), states[g][i]);
    }
  });
}

template <typename P>
void summarise_item(const Forward& a, const Item& item, float* summaries) {
  InputColumns in;
  Chunk chunk;
  State states[kVectors];
  Sum log_decays[kVectors] = {};
  for (State& state : states) state = empty_state();
  for (int64_t index = 0; index < chunks_of(item.segment); ++index) {
    const Tokens tokens = chunk_of(item.segment, index);
    gather_inputs<P>(a, item, tokens, in);
    for (int i = 0; i < item.vectors(); ++i) {
      chunk.choose(a, item, tokens, in, i);
      replay<P>(chunk, beta_of<P>(a, item.place(a, i)), states[i]);
      for (int64_t t = 0; P::kDecays && t < chunk.count; ++t)
        if (!chunk.masked(t)) log_decays[i].add(load(chunk.log_decay + t * kLanes));
    }
  }
  for (int i = 0; i < item.vectors(); ++i) {
    const Place at = item.place(a, i);
    const State& s = states[i];
    const Floats all[kSummary] = {P::kWeights ? s.scale : Floats{},
                                  log_decays[i].high,
                                  log_decays[i].low,
                                  s.one.high,
                                  s.value.high,
                                  s.energy.high};
    float* to = summaries + item.segment_index * kSummary * a.channels() + at.channel;
    for (int part = 0; part < kSummary; ++part) store_lanes(to + part * a.channels(), all[part], at.lanes);
  }
}

}  // namespace

namespace FEM_ISA {

void forward(const Forward& a, int64_t begin, int64_t end, float* scratch) {
  with_prior(a, [&](auto prior) { forward_items<decltype(prior)>(a, begin, end, scratch); });
}

void summarise(const Forward& a, int64_t begin, int64_t end, float* summaries) {
  with_prior(a, [&](auto prior) {
    for (int64_t i = begin; i < end; ++i)
      summarise_item<decltype(prior)>(a, item_of(a, i % a.segment_count, i / a.segment_count), summaries);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::channel_kernels
