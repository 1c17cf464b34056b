// A few queries over many keys (decoding): every key and value is read once per query, exp(beta v) is recomputed.
#include "ops/softmax_read/cpu/common.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kChunk = 256;      // keys whose scores wait on the stack
constexpr int64_t kMostWidth = 512;  // V up to which the sums live on the stack

template <typename Scalar>
inline float dot(const Scalar* a, const Scalar* b, int64_t width) {
  Floats total[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes)
    for (int part = 0; part < 4; ++part) total[part] += load(a + i + part * kLanes) * load(b + i + part * kLanes);
  Floats rest{};
  for_vectors(width - i, [&](int64_t j, auto&& get, auto&&) { rest += get(a + i + j) * get(b + i + j); });
  return sum((total[0] + total[1]) + (total[2] + total[3]) + rest);
}

// One query: running maximum, then sums of p, p v and p exp(beta v).
template <typename Scalar>
void read_one(const Forward& a, int64_t batch, int64_t head, int64_t t) {
  const int64_t width = a.value_width, part = part_width(a);
  const float* beta = a.beta ? a.beta + head * width : nullptr;
  const bool* real = a.key_mask ? a.key_mask + batch * a.keys : nullptr;
  const Scalar* query = row<Scalar>(a.query, batch, t, head);
  float out[2 * kMostWidth];
  std::memset(out, 0, mixed_width(a) * sizeof(float));
  float highest = -kInfinity, total = 0;
  Floats largest{};

  for (int64_t base = a.key_begin[t]; base < a.key_end[t]; base += kChunk) {
    const int64_t count = lesser(kChunk, a.key_end[t] - base);
    float weights[kChunk];
    const float before = highest;
    for (int64_t n = 0; n < count; ++n) {
      const bool visible = !real || real[base + n];
      weights[n] = visible ? a.scale * dot(query, row<Scalar>(a.key, batch, base + n, head), a.key_width) : -kInfinity;
      highest = weights[n] > highest ? weights[n] : highest;
    }
    const float shift = highest > -kInfinity ? highest : 0;
    Floats sums{};
    for_vectors(count, [&](int64_t n, auto&& get, auto&& put) {
      put(weights + n, exp<kGuard>(get(weights + n) - shift));
      sums += get(weights + n);  // read again: lanes past the tail are 0 now
    });
    const float rescale = exp(splat(before - shift))[0];
    total = total * rescale + sum(sums);
    for (int64_t c = 0; c < mixed_width(a); c += kLanes) store(out + c, load(out + c) * rescale);
    for (int64_t n = 0; n < count; ++n) {
      if (real && !real[base + n]) continue;
      const Scalar* v = row<Scalar>(a.value, batch, base + n, head);
      const float p = weights[n];
      for_vectors(width, [&](int64_t c, auto&& get, auto&&) {
        const Floats x = get(v + c);
        store(out + c, load(out + c) + p * x);
        if (!beta) return;
        const Floats exponent = get(beta + c) * x;
        largest = largest > abs(exponent) ? largest : abs(exponent);
        store(out + part + c, load(out + part + c) + p * exp(exponent));
      });
    }
  }
  a.largest[(batch * a.heads + head) * a.queries + t] = max(largest);
  write_read<Scalar>(a, batch, head, t, out, highest, total);
}

}  // namespace

namespace FEM_ISA {

int64_t step_width() { return kMostWidth; }

void step(const Forward& a, int64_t begin, int64_t end) {
  with_scalar(a, [&](auto scalar) {
    for (int64_t item = begin; item < end; ++item)
      for (int64_t t = 0; t < a.queries; ++t) read_one<decltype(scalar)>(a, item / a.heads, item % a.heads, t);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::softmax_kernels
