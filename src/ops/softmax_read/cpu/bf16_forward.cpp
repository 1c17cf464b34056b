// Forward kernel for bfloat16 on the matrix unit. For a block of queries, over blocks of keys:
//   S = Q K^T      P = 2^g exp(scale S - running maximum), rounded to bfloat16      O += P [v, exp(beta v) - o]
// Blocks that are visible in part go by strips of queries, each over the panels of keys it sees.
#include "ops/softmax_read/cpu/bf16_pack.h"

namespace fem::softmax_kernels {
namespace {

// S, P and a block's operands stay in a second-level cache of 1 MB (docs/decisions/0010-bfloat16-on-matrix-units.md).
constexpr int64_t kQueries = 256;
constexpr int64_t kKeys = 256;
constexpr int64_t kScoreRow = kKeys + 16;  // an odd number of cache lines: rows spread over all sets of the cache
constexpr int64_t kWeightRow = kKeys + 32;
static_assert(kQueries % kStrip == 0 && kKeys % kColumns == 0);

struct Scratch {
  Bfloat16* query;    // Q                           [kQueries x even K]
  Bfloat16* weights;  // P                           [kQueries x kWeightRow]
  float* scores;      // S                           [kQueries x kScoreRow]
  float* out;         // O                           [kQueries x columns of mixed]
  float* highest;     // running maximum             [kQueries]
  float* total;       // sum of weights              [kQueries]
  float* kept;        // sum of weights as rounded   [kQueries]
  int64_t floats = 0;

  Scratch(const Arguments& a, float* at) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    const auto take_halves = [&](int64_t count) { return next_halves_of(at, floats, count); };
    query = take_halves(kQueries * even(a.key_width));
    weights = take_halves(kQueries * kWeightRow);
    scores = take(kQueries * kScoreRow);
    out = take(kQueries * columns_of(mixed_width(a)));
    highest = take(kQueries);
    total = take(kQueries);
    kept = take(kQueries);
  }
};

// A block of packed keys: panels of K^T, then panels of [v, exp(beta v) - o].
inline int64_t key_halves(const Arguments& a) { return kKeys * even(a.key_width); }
inline int64_t mixed_halves(const Arguments& a) { return kKeys * round_up(mixed_width(a), kColumns); }
inline Bfloat16* packed_block(const Forward& a, int64_t item) {
  return reinterpret_cast<Bfloat16*>(a.mixed) + item * (key_halves(a) + mixed_halves(a));
}

// S -> P for query m over the keys in range, with its running maximum, sums and O brought up to date.
template <typename Hide>
void softmax_row(const Arguments& a, const Scratch& s, int64_t m, Range keys, Hide&& hide) {
  float* scores = s.scores + m * kScoreRow;
  Bfloat16* weights = s.weights + m * kWeightRow;
  Floats highest = splat(s.highest[m]);
  for (int64_t n = keys.from; n < keys.to; n += kLanes) {
    const Floats x = hide(n, load(scores + n) * a.scale);
    store(scores + n, x);
    highest = max(x, highest);
  }
  const float top = max(highest), shift = top > -kInfinity ? top : 0;
  Floats total{}, kept{};
  for (int64_t n = keys.from; n < keys.to; n += kLanes) {
    const Floats p = exp<kGuard>(load(scores + n) - shift);
    const Words nearest = rounded(p);
    store_upper(weights + n, nearest);
    total += p;
    kept += reinterpret_cast<Floats>(nearest);
  }
  const float rescale = exp(splat(s.highest[m] - shift))[0];
  s.highest[m] = top;
  s.total[m] = s.total[m] * rescale + sum(total);
  s.kept[m] = s.kept[m] * rescale + sum(kept);
  if (rescale == 1) return;
  const int64_t columns = columns_of(mixed_width(a));
  float* out = s.out + m * columns;
  for (int64_t c = 0; c < columns; c += kLanes) store(out + c, load(out + c) * rescale);
}

// Queries [m, m + count) of the block that starts at begin, over the keys of one block.
void strip(const Forward& a, const Scratch& s, const Bfloat16* block, int64_t batch, int64_t begin, int64_t m,
           int64_t count, int64_t base, bool whole) {
  const int32_t *key_begin = a.key_begin + begin + m, *key_end = a.key_end + begin + m;
  const Range keys = panels_seen(key_begin[0], key_end[count - 1], base, lesser(kKeys, a.keys - base));
  if (keys.from == keys.to) return;
  const int64_t rows = round_up(count, kRowStep), depth = even(a.key_width), columns = columns_of(mixed_width(a));
  // S <- Q K^T
  multiply(*a.unit, rows, keys, depth, s.query + m * depth, depth, block, depth, s.scores + m * kScoreRow, kScoreRow,
           /*add=*/false);
  if (whole && !a.key_mask) {
    for (int64_t r = 0; r < count; ++r) softmax_row(a, s, m + r, keys, [](int64_t, Floats scores) { return scores; });
  } else {
    int32_t index[kKeys];  // a key's position, or one that no query sees
    for (int64_t n = keys.from; n < keys.to; ++n) {
      const int64_t key = base + n;
      const bool real = key < a.keys && (!a.key_mask || a.key_mask[batch * a.keys + key]);
      index[n] = real ? static_cast<int32_t>(key) : -1;
    }
    for (int64_t r = 0; r < count; ++r)
      softmax_row(a, s, m + r, keys, [&](int64_t n, Floats scores) {
        const Ints key = load(index + n);
        return select((key >= key_begin[r]) & (key < key_end[r]), scores, splat(-kInfinity));
      });
  }
  // O <- O + P [v, e - o]
  multiply(*a.unit, rows, {0, columns}, keys.to - keys.from, s.weights + m * kWeightRow + keys.from, kWeightRow,
           block + key_halves(a) + keys.from * kColumns, kKeys, s.out + m * columns, columns, /*add=*/true);
}

void query_block(const Forward& a, const Scratch& s, int64_t batch, int64_t head, int64_t begin) {
  const int64_t count = lesser(kQueries, a.queries - begin), depth = even(a.key_width);
  const int64_t columns = columns_of(mixed_width(a)), key_blocks = (a.keys + kKeys - 1) / kKeys;
  std::memset(s.query, 0, kQueries * depth * sizeof(Bfloat16));
  for (int64_t m = 0; m < count; ++m)
    std::memcpy(s.query + m * depth, row<Bfloat16>(a.query, batch, begin + m, head), a.key_width * sizeof(Bfloat16));
  std::memset(s.out, 0, kQueries * columns * sizeof(float));
  for (int64_t m = 0; m < count; ++m) {
    s.highest[m] = -kInfinity;
    s.total[m] = s.kept[m] = 0;
  }

  const int64_t first = a.key_begin[begin], last = a.key_end[begin + count - 1];
  for (int64_t base = first / kKeys * kKeys; base < last; base += kKeys) {
    const Bfloat16* block = packed_block(a, (batch * a.heads + head) * key_blocks + base / kKeys);
    const bool whole =
        base + kKeys <= a.keys && a.key_begin[begin + count - 1] <= base && a.key_end[begin] >= base + kKeys;
    const int64_t step = whole ? kQueries : kStrip;
    for (int64_t m = 0; m < count; m += step) strip(a, s, block, batch, begin, m, lesser(step, count - m), base, whole);
  }
  // The read is divided by the sum of the weights that were mixed; the log-normaliser is that of the exact ones.
  for (int64_t m = 0; m < count; ++m)
    write_read<Bfloat16>(a, batch, head, begin + m, s.out + m * columns,
                         s.highest[m] + log(splat(s.total[m] / s.kept[m]))[0], s.kept[m]);
}

}  // namespace

namespace bf16::FEM_ISA {

// 1 for a channel whose exp(beta v) are all near 1: rounded to bfloat16 they would leave log z an error of 2^-9.
void choose_offsets(const Arguments& a, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t batch = item / a.heads, head = item % a.heads;
    const float* beta = a.beta + head * a.value_width;
    float* offset = a.offset + item * a.value_width;
    std::memset(offset, 0, a.value_width * sizeof(float));
    for (int64_t n = 0; n < a.keys; ++n) {
      if (a.key_mask && !a.key_mask[batch * a.keys + n]) continue;
      const Bfloat16* v = row<Bfloat16>(a.value, batch, n, head);
      for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) {
        const Floats largest = get(offset + c), size = abs(get(v + c));
        put(offset + c, size > largest ? size : largest);
      });
    }
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) {
      put(offset + c, select(get(beta + c) * get(offset + c) < 1.0f, splat(1.0f), Floats{}));
    });
  }
}

Blocks forward_blocks(const Arguments& a) { return {kQueries, kKeys, Scratch(a, nullptr).floats}; }

int64_t mixed_block_floats(const Arguments& a) { return (key_halves(a) + mixed_halves(a)) / 2; }

void pack_keys(const Forward& a, int64_t begin, int64_t end) {
  const int64_t blocks = (a.keys + kKeys - 1) / kKeys;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t base = item % blocks * kKeys, head = item / blocks % a.heads, batch = item / blocks / a.heads;
    const int64_t count = lesser(kKeys, a.keys - base);
    Bfloat16* block = packed_block(a, item);
    const KeyRows keys(a, batch, head, base, count);
    pack_transposed(block, round_up(count, kColumns), even(a.key_width),
                    [&](int64_t n, int64_t w) { return keys.words(n, w); });
    Bfloat16* mixed = block + key_halves(a);
    std::memset(mixed, 0, mixed_halves(a) * sizeof(Bfloat16));
    a.largest[item] = mix_keys<Bfloat16>(a, batch, head, base, count, [&](int64_t n, int64_t c, Floats x) {
      Bfloat16* to = mixed + c / kColumns * kKeys * kColumns + n / 2 * 2 * kColumns + c % kColumns * 2;
      const Words upper = rounded(x);  // the first of a pair is put first
      store_words(to, n % 2 == 0 ? upper >> 16 : load_as<Words>(to) | upper);
    });
  }
}

void forward(const Forward& a, int64_t begin, int64_t end, float* scratch) {
  const Scratch s(a, scratch);
  const int64_t blocks = (a.queries + kQueries - 1) / kQueries;
  for (int64_t item = begin; item < end; ++item)
    query_block(a, s, item / blocks / a.heads, item / blocks % a.heads, item % blocks * kQueries);
  a.unit->release();
}

}  // namespace bf16::FEM_ISA
}  // namespace fem::softmax_kernels
