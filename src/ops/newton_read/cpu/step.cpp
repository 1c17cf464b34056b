// A few queries over many keys (decoding): keys and values are read in place, a row of weights is kept between two
// sweeps. Rows of weight 0, of masked keys above all, are passed over.
#include "cpu/dot.h"
#include "ops/newton_read/cpu/strip.h"

namespace fem::newton_kernels {
namespace {

constexpr int kWide = 4;  // vectors of sums that stay in registers over a sweep

// to[c] = sum_n weights[n] rows[n][c]
template <int kVectors, typename Scalar>
void sum_columns(float* to, const float* weights, Range keys, const Scalar* rows, int64_t row) {
  Floats sums[kVectors] = {};
  for (int64_t n = keys.from; n < keys.to; ++n) {
    if (weights[n] == 0) continue;
    const Floats w = splat(weights[n]);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) sums[i] += w * load(rows + n * row + i * kLanes);
  }
  for (int i = 0; i < kVectors; ++i) store(to + i * kLanes, sums[i]);
}

template <typename Scalar>
void weighted_sum(float* to, const float* weights, Range keys, const Scalar* rows, int64_t row, int64_t width) {
  int64_t c = 0;
  for (; c + kWide * kLanes <= width; c += kWide * kLanes) sum_columns<kWide>(to + c, weights, keys, rows + c, row);
  for (; c + kLanes <= width; c += kLanes) sum_columns<1>(to + c, weights, keys, rows + c, row);
  if (c == width) return;
  Floats sums{};
  for (int64_t n = keys.from; n < keys.to; ++n)
    if (weights[n] != 0) sums += weights[n] * load_first(rows + n * row + c, width - c);
  store(to + c, sums);
}

// Weights of the scores; returns the log-normaliser.
float softmax(float* scores, Range keys) {
  Floats highest = splat(-kInfinity), totals{};
  float most = -kInfinity;
  for (int64_t n = keys.from; n < keys.to; ++n) most = scores[n] > most ? scores[n] : most;
  if (most == -kInfinity) {
    for (int64_t n = keys.from; n < keys.to; ++n) scores[n] = 0;
    return most;
  }
  highest = splat(most);
  float* first = scores + keys.from;
  for_vectors(keys.to - keys.from, [&](int64_t n, auto&& get, auto&& put) {
    put(first + n, exp(get(first + n) - highest));
    totals += get(first + n);  // read again: lanes past the tail are 0 now
  });
  const float inverse = 1 / sum(totals);
  for_vectors(keys.to - keys.from,
              [&](int64_t n, auto&& get, auto&& put) { put(first + n, get(first + n) * inverse); });
  return most - log(splat(inverse))[0];
}

template <typename Scalar>
void read_head(const Forward& a, int64_t item, float* scratch) {
  const int64_t batch = item / a.heads, head = item % a.heads, space = a.space_width();
  const bool* real = a.key_mask ? a.key_mask + batch * a.keys : nullptr;
  const Scalar *key = row<Scalar>(a.key, batch, 0, head), *value = row<Scalar>(a.value, batch, 0, head);
  const Scalar* u = a.of_values ? value : key;
  const int64_t u_row = a.of_values ? a.value.token : a.key.token;
  Memory memory{scratch};
  float* weights = memory.take(a.keys);
  float* sums = memory.take(round_up(space > a.value_width ? space : a.value_width, kLanes));
  float* g = memory.take(space);
  for (int64_t t = 0; t < a.queries; ++t) {
    const Range keys{a.key_begin[t], a.key_end[t]};
    const int64_t place = (batch * a.queries + t) * a.heads + head;
    const Scalar* query = row<Scalar>(a.query, batch, t, head);
    for (int64_t n = keys.from; n < keys.to; ++n)
      weights[n] = real && !real[n] ? -kInfinity : a.scale * dot(query, key + n * a.key.token, a.key_width);
    a.log_normalizer[place] = softmax(weights, keys);
    weighted_sum(sums, weights, keys, u, u_row, space);
    float* mean = a.mean + place * space;
    std::memcpy(mean, sums, space * sizeof(float));
    for_vectors(space, [&](int64_t c, auto&& get, auto&& put) {
      put(g + c, a.of_values ? get(mean + c) : get(mean + c) - a.rho * get(query + c));
    });
    const float mean_g = dot(mean, g, space), alpha = a.alpha[head];
    for (int64_t n = keys.from; n < keys.to; ++n)
      if (weights[n] != 0) weights[n] *= 1 + alpha * (dot(g, u + n * u_row, space) - mean_g);
    weighted_sum(sums, weights, keys, value, a.value.token, a.value_width);
    Scalar* read = static_cast<Scalar*>(a.read) + place * a.value_width;
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) { put(read + c, get(sums + c)); });
  }
}

}  // namespace

namespace FEM_ISA {

int64_t step_floats(const Arguments& a) { return a.keys + 2 * (a.key_width + a.value_width + kLanes); }

void step(const Forward& a, int64_t head, float* scratch) {
  with_scalar(a, [&](auto scalar) { read_head<decltype(scalar)>(a, head, scratch); });
}

}  // namespace FEM_ISA
}  // namespace fem::newton_kernels
