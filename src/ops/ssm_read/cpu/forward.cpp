// The scan, vectors of channels at a time: their state, [R, streams] vectors, stays in the first-level cache.
#include "ops/ssm_read/cpu/common.h"

namespace fem::ssm_kernels {
namespace {

struct Buffers {
  float* rows;     // [chunk, 2, R] B and C
  float* state;    // [R, streams] vectors
  float* rests;    // the same: what rounding took off it (next_token)
  float* rates;    // [R] vectors of A
  float* factors;  // [R] vectors: Decay::factor
  int64_t size;

  Buffers(const Arguments& a, float* memory) {
    Scratch scratch{memory};
    rows = scratch.next(kChunk * 2 * a.rank);
    state = scratch.next(streams_of(a) * a.rank * kLanes);
    rests = scratch.next(streams_of(a) * a.rank * kLanes);
    rates = scratch.next(a.rank * kLanes);
    factors = scratch.next(a.rank * kLanes);
    size = scratch.taken;
  }
};

// By vectors: of rank 0 there is no memory, and memset takes no null.
void forget_rests(const Arguments& a, const Buffers& use) {
  for (int64_t i = 0; i < streams_of(a) * a.rank; ++i) store(use.rests + i * kLanes, Floats{});
}

// The state after a token. What a long memory gains and loses in a token is small beside it: the rest that rounding
// takes off is kept and added next time, or equal steps would go wrong the same way every time, 1e-3 over a hundred
// thousand tokens.
template <int kStreams, Reads kReads>
Streams next_token(const Arguments& a, const Token& x, const float* rows, const Buffers& use) {
  return step<kStreams, kReads>(x, a.rank, use.rates, rows, rows + a.rank, use.factors, use.state, use.state,
                                [rests = use.rests](int64_t r, int s, const Decay& decay, Floats h, Floats gained) {
                                  float* rest = rests + (r * kStreams + s) * kLanes;
                                  const Floats kept = where(decay.near, h);
                                  const Floats change = decay.factor * h + (gained + load(rest));
                                  const Floats next = kept + change;
                                  store(rest, change - (next - kept));
                                  return next;
                                });
}

// Reads and writes the tokens of a chunk; the state moves on. Returns the largest |beta v|.
template <int kStreams, Reads kReads>
Floats read_chunk(const Forward& a, const Tokens& chunk, Lanes lanes, const Buffers& use) {
  const Floats D = load(a.D + lanes.first), beta = a.beta ? load(a.beta + lanes.first) : splat(1.0f);
  Floats largest{};
  const float* rows = use.rows;
  for (int64_t t = chunk.begin; t < chunk.end; ++t, rows += 2 * a.rank) {
    const Token x = load_token(a, chunk.batch, t, lanes);
    largest = max(abs(x.exponent), largest);  // passes over NaN
    const Streams read = next_token<kStreams, kReads>(a, x, rows, use);
    const Sums sums = sums_of<kStreams>(read, x, D);
    store_row(a, a.mean, chunk.batch, t, lanes, mean_of(sums));
    const int64_t row = (chunk.batch * a.tokens + t) * a.channels;
    if (kStreams == 3) store_lanes(a.free_energy + row, free_energy_of(sums, beta), lanes);
    store_lanes(a.log_normalizer + row, log_normalizer_of(sums), lanes);
  }
  return largest;
}

}  // namespace

namespace FEM_ISA {

int64_t forward_scratch(const Arguments& a) { return Buffers(a, nullptr).size; }

float forward(const Forward& a, const Segment& segment, Groups groups, const float* before, float* after,
              float* scratch) {
  const Buffers use(a, scratch);
  const int64_t chunks = chunk_count(segment, kChunk);
  Floats largest{};
  for (int64_t c = 0; c < chunks; ++c) {
    const Tokens chunk = chunk_of(segment, c, kChunk);
    float* const next = c + 1 < chunks ? checkpoint(a, segment, c + 1) : after;
    gather_rows(a, chunk, use.rows);
    for_lanes(a, groups, [&](Lanes lanes) {
      load_rates(a, lanes, use.rates);
      forget_rests(a, use);
      load_state(a, c == 0 ? before : checkpoint(a, segment, c), lanes, use.state);
      if (c == 0) store_state(a, use.state, lanes, checkpoint(a, segment, c));
      specialised(a, [&](auto streams, auto reads) {
        largest = max(read_chunk<streams.value, reads.value>(a, chunk, lanes, use), largest);
      });
      if (next) store_state(a, use.state, lanes, next);
    });
  }
  return max(largest);
}

void advance(const Forward& a, const Segment& segment, Groups groups, const float* before, float* after, float* elapsed,
             float* scratch) {
  const Buffers use(a, scratch);
  for (int64_t c = 0; c < chunk_count(segment, kChunk); ++c) {
    const Tokens chunk = chunk_of(segment, c, kChunk);
    gather_rows(a, chunk, use.rows);
    for_lanes(a, groups, [&](Lanes lanes) {
      load_rates(a, lanes, use.rates);
      forget_rests(a, use);
      load_state(a, c == 0 ? before : after, lanes, use.state);
      Floats time = c == 0 ? Floats{} : load(elapsed + lanes.first);
      const float* rows = use.rows;
      specialised(a, [&](auto streams, auto) {
        for (int64_t t = chunk.begin; t < chunk.end; ++t, rows += 2 * a.rank) {
          const Token x = load_token(a, chunk.batch, t, lanes);
          next_token<streams.value, Reads::kAfter>(a, x, rows, use);
          time += x.delta;
        }
      });
      store_state(a, use.state, lanes, after);
      store(elapsed + lanes.first, time);
    });
  }
}

void join(const Arguments& a, Groups groups, const float* from, const float* elapsed, float* to) {
  for_lanes(a, groups, [&](Lanes lanes) {
    const Floats time = load(elapsed + lanes.first);
    for (int64_t i = 0; i < streams_of(a) * a.rank; ++i) {
      const int64_t at = i * a.line + lanes.first;
      const Floats decay = exp(time * load(a.A + i % a.rank * a.line + lanes.first));
      store(to + at, decay * load(from + at) + load(to + at));
    }
  });
}

}  // namespace FEM_ISA
}  // namespace fem::ssm_kernels
