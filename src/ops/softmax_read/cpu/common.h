// Shared by the softmax_read kernels.
#pragma once

#include "cpu/pack.h"
#include "ops/softmax_read/cpu/kernels.h"

namespace fem::softmax_kernels {
namespace {

using namespace fem::cpu;

// Weights are kept as 2^kGuard p. With |beta v| <= 40 a weight of e^-118 can still matter beside one of 1 (it may meet
// e^{80} more), and plain float32 ends at e^-87; with the guard nothing that matters underflows, sums of 2^40 terms
// do not overflow, and the factor is exact. README.md, "Range".
constexpr int kGuard = 46;
constexpr float kGuardDown = 1.0f / (1ll << kGuard);

inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
inline Range clamp(int64_t from, int64_t to, int64_t size) {
  from = greater(0, lesser(from, size));
  return {from, greater(from, lesser(to, size))};
}

// The next count floats of scratch memory; with at = null only counts them.
inline float* next_of(float* at, int64_t& taken, int64_t count) {
  taken += count;
  return at ? at + taken - count : nullptr;
}

template <typename Scalar>
inline Scalar* output_row(const OutputRows& tensor, int64_t batch, int64_t token, int64_t head) {
  return static_cast<Scalar*>(tensor.data) + batch * tensor.batch + token * tensor.token + head * tensor.head;
}

// dF / beta; lanes past the tail have beta = 0.
inline Floats over_beta(Floats grad_free_energy, Floats beta) {
  return select(grad_free_energy == 0.0f, Floats{}, grad_free_energy / beta);
}

// What is mixed: [v, exp(beta v) - o], or v alone without beta, each part from a whole vector on.
inline int64_t part_width(const Arguments& a) { return round_up(a.value_width, kLanes); }
inline int64_t mixed_width(const Arguments& a) { return a.beta ? 2 * part_width(a) : part_width(a); }

// The offsets o of a head, or null.
inline const float* offset_of(const Arguments& a, int64_t batch, int64_t head) {
  return a.offset ? a.offset + (batch * a.heads + head) * a.value_width : nullptr;
}

inline bool is_biased(const Arguments& a) { return a.bias.values || a.bias.slopes; }

// b_{t,i} of one head.
inline float bias_of(const Arguments& a, int64_t head, int64_t t, int64_t i) {
  const int64_t distance = t + a.bias.offset - i;
  float b = a.bias.values ? a.bias.values[head * a.bias.head + t * a.keys + i] : 0;
  if (a.bias.slopes) b -= a.bias.slopes[head] * static_cast<float>(distance < 0 ? -distance : distance);
  return b;
}

// Calls put(n, column, vector) for every vector of [v, exp(beta v) - o] of the keys [begin, begin + count) of one head.
// Masked keys mix as 0. Returns the largest |beta v|.
template <typename Scalar, typename Put>
inline float mix_keys(const Arguments& a, int64_t batch, int64_t head, int64_t begin, int64_t count, Put&& put) {
  const float* beta = a.beta ? a.beta + head * a.value_width : nullptr;
  const float* offset = offset_of(a, batch, head);
  Floats largest{};
  for (int64_t n = 0; n < count; ++n) {
    const bool real = !a.key_mask || a.key_mask[batch * a.keys + begin + n];
    const Scalar* v = row<Scalar>(a.value, batch, begin + n, head);
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&&) {
      const Floats x = real ? get(v + c) : Floats{};
      put(n, c, x);
      if (!beta) return;
      const Floats exponent = get(beta + c) * x;
      const Floats o = offset ? get(offset + c) : Floats{};
      put(n, part_width(a) + c, real ? exp(exponent) - o : Floats{});
      largest = max(abs(exponent), largest);  // in this order NaN is passed over
    });
  }
  return max(largest);
}

// Writes mean, free energy and log-normaliser of one query from its sums
// out = 2^g sum_i e^{s_i - highest} [v, e - o]_i.
template <typename Scalar>
inline void write_read(const Forward& a, int64_t batch, int64_t head, int64_t t, const float* out, float highest,
                       float total) {
  const int64_t width = a.value_width;
  const int64_t place = (batch * a.queries + t) * a.heads + head;
  const float* beta = a.beta ? a.beta + head * width : nullptr;
  const float* offset = offset_of(a, batch, head);
  const bool empty = total == 0;  // false for NaN
  const float inverse = empty ? 0 : 1 / total;
  a.log_normalizer[place] = empty ? -kInfinity : highest + log(splat(total))[0] - kGuard * kLn2;
  Scalar* mean = static_cast<Scalar*>(a.mean) + place * width;
  float* free_energy = a.free_energy + (beta ? place * width : 0);
  for_vectors(width, [&](int64_t c, auto&& get, auto&& put) {
    put(mean + c, load(out + c) * inverse);
    if (!beta) return;
    const Floats z = load(out + part_width(a) + c) * inverse + (offset ? get(offset + c) : Floats{});
    put(free_energy + c, empty ? Floats{} : log(z) / get(beta + c));
  });
}

}  // namespace
}  // namespace fem::softmax_kernels
