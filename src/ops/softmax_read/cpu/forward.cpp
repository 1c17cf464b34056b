// Forward kernel. For a block of queries, over blocks of keys:
//   S^T = K Q^T           keys x queries, so that the softmax runs along vectors of queries, without reductions in one
//   P^T = 2^g exp(S^T - running maximum)
//   O  += P [v, exp(beta v)]
// and at the end mean = O_v / sum, F = log(O_e / sum) / beta. Tiles that no query of theirs may see are skipped.
#include <type_traits>

#include "ops/softmax_read/cpu/common.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kQueries = 192;  // docs/performance_log.md, "block sizes of the softmax read"
constexpr int64_t kKeys = 96;
// One cache line more than the queries take: an odd number of lines, so that a column of the scores, read down the
// keys, spreads over all sets of the first-level cache.
constexpr int64_t kScoreRow = kQueries + 16;
static_assert(kQueries % kPanel == 0 && kQueries % kTileRows == 0 && kKeys % kTileRows == 0);

struct Scratch {
  float* query;    // Q^T panels           [K x kQueries]
  float* scores;   // S^T, then P^T        [kKeys x kScoreRow]
  float* out;      // O                    [kQueries x padded mixed]
  float* highest;  // running maximum      [kQueries]
  float* total;    // sum of weights       [kQueries]
  float* rescale;  // of O at a new maximum[kQueries]

  int64_t floats = 0;

  Scratch(const Arguments& a, float* at) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    query = take(kQueries * a.key_width);
    scores = take(kKeys * kScoreRow);
    out = take(kQueries * padded(mixed_width(a)));
    highest = take(kQueries);
    total = take(kQueries);
    rescale = take(kQueries);
  }
};

// Hides nothing: every query of the block sees every key of it.
struct Nothing {
  Floats operator()(int64_t, int64_t, Floats scores) const { return scores; }
};

// Hides what query m + lane may not see of key base + n.
struct Invisible {
  const int32_t *begin, *end;
  const bool* real;  // by n, or null
  int64_t base;
  Floats operator()(int64_t m, int64_t n, Floats scores) const {
    if (real && !real[n]) return splat(-kInfinity);
    const auto key = static_cast<int32_t>(base + n);
    return select((load(begin + m) <= key) & (load(end + m) > key), scores, splat(-kInfinity));
  }
};

// S^T -> P^T for one panel of queries, with their running maximum and sum brought up to date.
template <typename Hide>
void softmax_panel(const Scratch& s, int64_t m, Range keys, const Hide& hide) {
  float* low = s.scores + m;
  float* high = low + kLanes;
  const Floats before_low = load(s.highest + m), before_high = load(s.highest + m + kLanes);
  Floats highest_low = before_low, highest_high = before_high;
  for (int64_t n = keys.from; n < keys.to; ++n) {
    const Floats x = hide(m, n, load(low + n * kScoreRow));
    const Floats y = hide(m + kLanes, n, load(high + n * kScoreRow));
    if constexpr (!std::is_same_v<Hide, Nothing>) {
      store(low + n * kScoreRow, x);
      store(high + n * kScoreRow, y);
    }
    highest_low = max(x, highest_low);
    highest_high = max(y, highest_high);
  }
  const Floats shift_low = select(highest_low > -kInfinity, highest_low, Floats{});
  const Floats shift_high = select(highest_high > -kInfinity, highest_high, Floats{});
  Floats total_low{}, total_high{};
  for (int64_t n = keys.from; n < keys.to; ++n) {
    const Floats p = exp<kGuard>(load(low + n * kScoreRow) - shift_low);
    const Floats q = exp<kGuard>(load(high + n * kScoreRow) - shift_high);
    store(low + n * kScoreRow, p);
    store(high + n * kScoreRow, q);
    total_low += p;
    total_high += q;
  }
  const auto bring_up = [&](int64_t at, Floats before, Floats highest, Floats shift, Floats total) {
    const Floats rescale = exp(before - shift);
    store(s.highest + at, highest);
    store(s.rescale + at, rescale);
    store(s.total + at, load(s.total + at) * rescale + total);
  };
  bring_up(m, before_low, highest_low, shift_low, total_low);
  bring_up(m + kLanes, before_high, highest_high, shift_high, total_high);
}

// Asks for the part of floats [from, from + count) that falls to panel c of columns to be brought near.
inline void prefetch(const float* from, int64_t count, int64_t c, int64_t columns) {
  const int64_t begin = count * c / columns, end = count * (c + kPanel) / columns;
  for (int64_t i = begin; i < end; i += 16) __builtin_prefetch(from + i, 0, 2);
}

template <typename Scalar>
void query_block(const Forward& a, const Scratch& s, int64_t batch, int64_t head, int64_t begin) {
  const int64_t count = lesser(kQueries, a.queries - begin);
  const int64_t columns = padded(mixed_width(a));
  const int64_t key_blocks = (a.keys + kKeys - 1) / kKeys;
  const float* mixed = a.mixed + (batch * a.heads + head) * key_blocks * kKeys * columns;
  const float* key = a.keys_packed + (batch * a.heads + head) * a.keys * a.key_width;

  // Borders of this block's queries; lanes past the last query see nothing.
  int32_t key_begin[kQueries], key_end[kQueries];
  for (int64_t m = 0; m < kQueries; ++m) {
    key_begin[m] = a.key_begin[begin + lesser(m, count - 1)];
    key_end[m] = m < count ? a.key_end[begin + m] : 0;
  }
  const auto sees = [&](int64_t first, int64_t last, int64_t base) {
    return clamp(key_begin[first] - base, key_end[lesser(last, count - 1)] - base, kKeys);
  };

  pack_panels_transposed(s.query, row<Scalar>(a.query, batch, begin, head), a.query.token, count, a.key_width, a.scale);
  std::memset(s.out, 0, count * columns * sizeof(float));
  for (int64_t m = 0; m < kQueries; ++m) s.highest[m] = -kInfinity, s.total[m] = 0;

  for (int64_t base = key_begin[0] / kKeys * kKeys; base < key_end[count - 1]; base += kKeys) {
    const int64_t keys = lesser(kKeys, key_end[count - 1] - base);
    const bool all_visible = !a.key_mask && key_begin[count - 1] <= base && key_end[0] >= base + keys;
    const Invisible invisible{key_begin, key_end, a.key_mask ? a.key_mask + batch * a.keys + base : nullptr, base};
    for (int64_t m = 0; m < count; m += kPanel) {
      const Range rows = sees(m, m + kPanel - 1, base);
      // S^T <- K Q^T, and P^T while the panel is in the first-level cache
      multiply_panel<false>(rows.from, rows.to, {key + base * a.key_width, a.key_width, 1}, s.query + m * a.key_width,
                            s.scores + m, kScoreRow, [&](int64_t, int64_t) { return Range{0, a.key_width}; });
      if (is_biased(a))
        for (int64_t q = m; q < lesser(m + kPanel, count); ++q)
          for (int64_t n = rows.from; n < rows.to; ++n)
            s.scores[n * kScoreRow + q] += bias_of(a, head, begin + q, base + n);
      // A tile of queries of the second product may straddle two panels: weights are due where either has any.
      const Range due = sees(greater(m - kTileRows, 0), m + kPanel + kTileRows, base);
      const bool whole = all_visible && m + kPanel <= count;
      if (whole)
        softmax_panel(s, m, due, Nothing{});
      else
        softmax_panel(s, m, due, invisible);
    }
    for (int64_t m = 0; m < count; ++m) {
      if (s.rescale[m] == 1) continue;  // the maximum of a query settles after a few blocks
      float* out = s.out + m * columns;
      for (int64_t c = 0; c < columns; c += kLanes) store(out + c, load(out + c) * s.rescale[m]);
    }
    // O <- O + P [v, e], while the next block's keys and values come from further away
    const float* block = mixed + base * columns;
    const int64_t ahead = lesser(kKeys, a.keys - base - kKeys);
    for (int64_t c = 0; c < columns; c += kPanel) {
      prefetch(key + (base + kKeys) * a.key_width, ahead * a.key_width, c, columns);
      prefetch(block + kKeys * columns, ahead * columns, c, columns);
      multiply_panel<true>(0, count, {s.scores, 1, kScoreRow}, block + c * kKeys, s.out + c, columns,
                           [&](int64_t first, int64_t last) { return sees(first, last, base); });
    }
  }
  for (int64_t m = 0; m < count; ++m)
    write_read<Scalar>(a, batch, head, begin + m, s.out + m * columns, s.highest[m], s.total[m]);
}

}  // namespace

namespace FEM_ISA {

Blocks forward_blocks(const Arguments& a) { return {kQueries, kKeys, Scratch(a, nullptr).floats}; }

int64_t mixed_block_floats(const Arguments& a) { return kKeys * padded(mixed_width(a)); }

void pack_keys(const Forward& a, int64_t begin, int64_t end) {
  const int64_t blocks = (a.keys + kKeys - 1) / kKeys;
  with_scalar(a, [&](auto scalar) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t base = item % blocks * kKeys, head = item / blocks % a.heads, batch = item / blocks / a.heads;
      const int64_t count = lesser(kKeys, a.keys - base);
      pack_rows(a.keys_packed + ((batch * a.heads + head) * a.keys + base) * a.key_width,
                row<decltype(scalar)>(a.key, batch, base, head), a.key.token, count, a.key_width);
      float* block = a.mixed + item * mixed_block_floats(a);
      a.largest[item] = mix_keys<decltype(scalar)>(a, batch, head, base, count, [&](int64_t n, int64_t c, Floats x) {
        store(block + c / kPanel * kKeys * kPanel + n * kPanel + c % kPanel, x);
      });
    }
  });
}

void forward(const Forward& a, int64_t begin, int64_t end, float* scratch) {
  const Scratch s(a, scratch);
  const int64_t blocks = (a.queries + kQueries - 1) / kQueries;
  with_scalar(a, [&](auto scalar) {
    for (int64_t item = begin; item < end; ++item)
      query_block<decltype(scalar)>(a, s, item / blocks / a.heads, item / blocks % a.heads, item % blocks * kQueries);
  });
}

}  // namespace FEM_ISA
}  // namespace fem::softmax_kernels
