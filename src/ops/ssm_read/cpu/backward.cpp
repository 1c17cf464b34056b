// The gradient, chunk by chunk from the last: states recomputed from the checkpoint, then the adjoint recurrence
//   dh_t = dS_t C_t + exp(delta_{t+1} A) dh_{t+1}
// of every stream, out of which all gradients are sums (README.md, "Backward").
#include "ops/ssm_read/cpu/common.h"

namespace fem::ssm_kernels {
namespace {

struct Buffers {
  float* rows;       // [chunk, 2, R] B and C
  float* grad_rows;  // [chunk, 2, R] vectors: their gradients, a sum over channels but for the lanes
  float* states;     // [chunk + 1, R, streams] vectors
  float* factors;    // [chunk, R] vectors: Decay::factor
  float* adjoint;    // [R, streams] vectors
  float* adjoints;   // [streams, R, line] between chunks
  float* rates;      // [R] vectors of A
  float* grad_rates;
  Token* tokens;  // [chunk]
  Floats* dsums;  // [chunk, 3]
  int64_t size;

  Buffers(const Arguments& a, float* memory) {
    Scratch scratch{memory};
    const int64_t state = streams_of(a) * a.rank * kLanes;
    rows = scratch.next(kChunk * 2 * a.rank);
    grad_rows = scratch.next(kChunk * 2 * a.rank * kLanes);
    states = scratch.next((kChunk + 1) * state);
    factors = scratch.next(kChunk * a.rank * kLanes);
    adjoint = scratch.next(state);
    adjoints = scratch.next(state_size(a));
    rates = scratch.next(a.rank * kLanes);
    grad_rates = scratch.next(a.rank * kLanes);
    tokens = reinterpret_cast<Token*>(scratch.next(kChunk * sizeof(Token) / sizeof(float)));
    dsums = reinterpret_cast<Floats*>(scratch.next(kChunk * 3 * kLanes));
    size = scratch.taken;
  }
};

Floats load_gradient(const Rows& x, bool bfloat16, int64_t batch, int64_t t, Lanes lanes) {
  return x.data ? load_row(x, bfloat16, batch, t, lanes) : Floats{};
}

// Gradients of D and beta that need no recurrence.
struct Direct {
  Floats D, beta;
};

// States and decays of every token from the state before the chunk, and the gradients of the sums.
template <int kStreams, Reads kReads>
Direct recompute(const Backward& a, const Tokens& chunk, Lanes lanes, const Buffers& use) {
  const Floats D = load(a.D + lanes.first), beta = a.beta ? load(a.beta + lanes.first) : splat(1.0f);
  const int64_t state = kStreams * a.rank * kLanes;
  Direct direct{};
  for (int64_t t = chunk.begin; t < chunk.end; ++t) {
    const int64_t n = t - chunk.begin;
    const Token x = use.tokens[n] = load_token(a, chunk.batch, t, lanes);
    const float* rows = use.rows + n * 2 * a.rank;
    float* factors = use.factors + n * a.rank * kLanes;
    float* from = use.states + n * state;
    const Streams read = step<kStreams, kReads>(
        x, a.rank, use.rates, rows, rows + a.rank, factors, from, from + state,
        [](int64_t, int, const Decay& decay, Floats h, Floats gained) { return decay(h) + gained; });
    const Sums sums = sums_of<kStreams>(read, x, D);
    const Floats dmean = load_gradient(a.grad_mean, a.bfloat16, chunk.batch, t, lanes);
    const Floats dfree = load_gradient(a.grad_free_energy, false, chunk.batch, t, lanes);
    const Floats dlog = load_gradient(a.grad_log_normalizer, false, chunk.batch, t, lanes);
    const Sums d = gradient_of_sums(sums, beta, dmean, dfree, dlog);
    Floats* dsums = use.dsums + n * 3;
    dsums[0] = d.one;
    dsums[1] = d.value;
    dsums[2] = d.energy;
    for (int s = 0; s < kStreams; ++s) direct.D += dsums[s] * x.input[s];
    if (kStreams == 3) direct.beta -= dfree * free_energy_of(sums, beta) / beta;
  }
  return direct;
}

// The adjoint through one chunk. kWhole: with all gradients; else it only moves on.
template <int kStreams, Reads kReads, bool kWhole>
void adjoint_chunk(const Backward& a, const Tokens& chunk, Lanes lanes, const Buffers& use, Direct& direct) {
  const Floats D = load(a.D + lanes.first), beta = a.beta ? load(a.beta + lanes.first) : Floats{};
  const int64_t state = kStreams * a.rank * kLanes, rank = a.rank;
  // Of their own, not read again from memory after every store.
  const float* const rates = use.rates;
  float *const adjoint = use.adjoint, *const grad_rates = use.grad_rates;
  for (int64_t t = chunk.end - 1; t >= chunk.begin; --t) {
    const int64_t n = t - chunk.begin;
    const Token x = use.tokens[n];
    const float *B = use.rows + n * 2 * a.rank, *C = B + a.rank;
    float *grad_B = use.grad_rows + n * 2 * a.rank * kLanes, *grad_C = grad_B + a.rank * kLanes;
    const float *factors = use.factors + n * a.rank * kLanes, *before = use.states + n * state;
    Floats dsums[3], gained[3], into[3] = {};  // into: sum_r B dh
    for (int s = 0; s < kStreams; ++s) {
      dsums[s] = use.dsums[n * 3 + s];
      gained[s] = x.delta * x.input[s];
    }
    Floats through_decay{};
    for (int64_t r = 0; r < rank; ++r) {
      const Floats rate = load(rates + r * kLanes);
      const Decay decay{load(factors + r * kLanes), is_near(x.delta * rate)};
      Floats dB{}, dC{}, product{};
#pragma GCC unroll 3
      for (int s = 0; s < kStreams; ++s) {
        const int64_t at = (r * kStreams + s) * kLanes;
        const Floats h = load(before + at);
        Floats dh = load(adjoint + at);
        const Floats read = dsums[s] * C[r];
        if (kReads == Reads::kAfter) dh += read;
        if (kWhole) {
          into[s] += dh * B[r];
          dB += dh * gained[s];
          dC += dsums[s] * (kReads == Reads::kAfter     ? load(before + state + at)
                            : kReads == Reads::kDecayed ? decay(h)
                                                        : h);
        }
        if (kReads == Reads::kDecayed) dh += read;
        if (kWhole) product += dh * h;
        store(adjoint + at, kReads == Reads::kBefore ? decay(dh) + read : decay(dh));
      }
      if (!kWhole) continue;
      const auto add = [&](float* to, Floats y) { store(to + r * kLanes, load(to + r * kLanes) + y); };
      add(grad_B, dB);
      add(grad_C, dC);
      const Floats decayed_product = decay(product);
      add(grad_rates, x.delta * decayed_product);
      through_decay += rate * decayed_product;
    }
    if (!kWhole) continue;
    if (!is_real(a, chunk.batch, t)) {
      store_row(a, a.grad_delta, chunk.batch, t, lanes, Floats{});
      store_row(a, a.grad_value, chunk.batch, t, lanes, Floats{});
      continue;
    }
    Floats ddelta = through_decay, dinput[3] = {};
    for (int s = 0; s < kStreams; ++s) {
      ddelta += into[s] * x.input[s];
      dinput[s] = into[s] * x.delta + D * dsums[s];
    }
    const Floats dexponent = dinput[2] * x.input[2];
    direct.beta += dexponent * x.input[1];
    store_row(a, a.grad_delta, chunk.batch, t, lanes, ddelta);
    store_row(a, a.grad_value, chunk.batch, t, lanes, dinput[1] + beta * dexponent);
  }
}

// One vector of channels through one chunk; the adjoint is loaded and kept by the caller.
template <bool kWhole>
Direct chunk_backward(const Backward& a, const Tokens& chunk, const float* before, Lanes lanes, const Buffers& use) {
  Direct direct{};
  load_rates(a, lanes, use.rates);
  load_state(a, before, lanes, use.states);
  specialised(a, [&](auto streams, auto reads) {
    direct = recompute<streams.value, reads.value>(a, chunk, lanes, use);
    adjoint_chunk<streams.value, reads.value, kWhole>(a, chunk, lanes, use, direct);
  });
  return direct;
}

void set_zero(float* x, int64_t count) { std::memset(x, 0, count * sizeof(float)); }

}  // namespace

namespace FEM_ISA {

int64_t backward_scratch(const Arguments& a) { return Buffers(a, nullptr).size; }

void backward(const Backward& a, const Segment& segment, Groups groups, const float* grad_after, float* grad_before,
              const Sink& sink, float* scratch) {
  const Buffers use(a, scratch);
  const int64_t last = chunk_count(segment, kChunk) - 1;
  for (int64_t c = last; c >= 0; --c) {
    const Tokens chunk = chunk_of(segment, c, kChunk);
    const int64_t rows = chunk.count() * 2 * a.rank;
    gather_rows(a, chunk, use.rows);
    set_zero(use.grad_rows, rows * kLanes);
    for_lanes(a, groups, [&](Lanes lanes) {
      set_zero(use.grad_rates, a.rank * kLanes);
      load_state(a, c == last ? grad_after : use.adjoints, lanes, use.adjoint);
      const Direct direct = chunk_backward<true>(a, chunk, checkpoint(a, segment, c), lanes, use);
      if (c > 0 || grad_before) store_state(a, use.adjoint, lanes, c > 0 ? use.adjoints : grad_before);
      // Sums of chunks lose fewer digits than one long sum.
      const auto add = [&](int64_t row, Floats x) {
        float* to = sink.grad_channels + row * a.line + lanes.first;
        store(to, load(to) + x);
      };
      for (int64_t r = 0; r < a.rank; ++r) add(r, load(use.grad_rates + r * kLanes));
      add(a.rank, direct.D);
      add(a.rank + 1, direct.beta);
    });
    float* to = sink.grad_rows + (chunk.batch * a.tokens + chunk.begin) * 2 * a.rank;
    for (int64_t i = 0; i < rows; ++i) to[i] = sum(load(use.grad_rows + i * kLanes));
  }
}

void retreat(const Backward& a, const Segment& segment, Groups groups, const float* grad_after, float* grad_before,
             float* elapsed, float* scratch) {
  const Buffers use(a, scratch);
  const int64_t last = chunk_count(segment, kChunk) - 1;
  for (int64_t c = last; c >= 0; --c) {
    const Tokens chunk = chunk_of(segment, c, kChunk);
    gather_rows(a, chunk, use.rows);
    for_lanes(a, groups, [&](Lanes lanes) {
      load_state(a, c == last ? grad_after : grad_before, lanes, use.adjoint);
      chunk_backward<false>(a, chunk, checkpoint(a, segment, c), lanes, use);
      store_state(a, use.adjoint, lanes, grad_before);
      Floats time = c == last ? Floats{} : load(elapsed + lanes.first);
      for (int64_t n = 0; n < chunk.count(); ++n) time += use.tokens[n].delta;
      store(elapsed + lanes.first, time);
    });
  }
}

}  // namespace FEM_ISA
}  // namespace fem::ssm_kernels
