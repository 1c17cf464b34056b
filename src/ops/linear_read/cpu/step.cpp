// A few tokens (decoding): the state is read, brought up to date, used and written row by row in one sweep.
#include "ops/linear_read/cpu/common.h"

namespace fem::linear_kernels {
namespace {

constexpr int64_t kMostTokens = 4;
constexpr int64_t kMostWidth = 512;  // V up to which the sums live on the stack

template <typename Scalar>
float step_sequence(const Forward& a, const Segment& segment, int64_t head, const float* from, float* to) {
  const Chunk c{segment.batch, head, segment.begin, segment.end - segment.begin};
  const int64_t width = a.value_width, columns = row_state_width(a);
  float mixed[kMostTokens][2 * kMostWidth], out[kMostTokens][2 * kMostWidth] = {};  // [v, e], side by side
  float decays[kMostTokens], totals[kMostTokens] = {};
  const float largest = mix<Scalar>(a, c, [&](int64_t n, int64_t j, Floats x) {
    const int64_t part = part_width(a), column = j < part ? j : width + j - part;
    const int64_t rest = j < part ? width - j : width + part - j;
    rest >= kLanes ? store(mixed[n] + column, x) : store_first(mixed[n] + column, x, rest);
  });
  const bool decaying = a.log_decay.data;
  for (int64_t n = 0; decaying && n < c.count; ++n) decays[n] = static_cast<float>(log_decay_of<Scalar>(a, c, n));
  const Scalar *query[kMostTokens], *key[kMostTokens];
  for (int64_t n = 0; n < c.count; ++n) {
    query[n] = row<Scalar>(a.query, c.batch, c.begin + n, head);
    key[n] = row<Scalar>(a.key, c.batch, c.begin + n, head);
  }

  // One token's passage through part of the state: what it reads there.
  const auto pass = [&](int64_t n, Floats& state, Floats increment) {
    if (decaying) state = decayed(state, splat(decays[n]));
    const Floats before = state;
    if (c.real(a, n)) state += increment;
    return a.strict ? before : state;
  };
  for (int64_t k = 0; k < a.key_width; ++k) {
    for_vectors(columns - 1, [&](int64_t j, auto&& get, auto&& put) {
      Floats state = from ? get(from + k * columns + j) : Floats{};
      for (int64_t n = 0; n < c.count; ++n) {
        const Floats seen = pass(n, state, to_float(key[n][k]) * get(mixed[n] + j));
        put(out[n] + j, get(out[n] + j) + to_float(query[n][k]) * seen);
      }
      put(to + k * columns + j, state);
    });
  }
  // The column of ones, down the rows: no row has a tail because of it.
  for_vectors(a.key_width, [&](int64_t k, auto&& get, auto&& put) {
    const int64_t count = lesser(kLanes, a.key_width - k);
    float ones[kLanes] = {};
    for (int64_t l = 0; from && l < count; ++l) ones[l] = from[(k + l + 1) * columns - 1];
    Floats state = load(ones);
    for (int64_t n = 0; n < c.count; ++n) totals[n] += sum(get(query[n] + k) * pass(n, state, get(key[n] + k)));
    store(ones, state);
    for (int64_t l = 0; l < count; ++l) to[(k + l + 1) * columns - 1] = ones[l];
  });

  for (int64_t n = 0; n < c.count; ++n) write_read<Scalar>(a, c, n, out[n], out[n] + width, totals[n]);
  return largest;
}

}  // namespace

namespace FEM_ISA {

int64_t step_tokens() { return kMostTokens; }
int64_t step_width() { return kMostWidth; }

float step(const Forward& a, const Segment& segment, Groups heads, const float* before, float* after) {
  float largest = 0;
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    const float most = with_scalar(a, [&](auto scalar) {
      return step_sequence<decltype(scalar)>(a, segment, head, of_head(a, before, head), of_head(a, after, head));
    });
    largest = most > largest ? most : largest;
  }
  return largest;
}

}  // namespace FEM_ISA
}  // namespace fem::linear_kernels
