// Backward kernel for bfloat16 on the matrix unit: backward.cpp's products (README.md has the derivation) in the shapes
// the unit takes, with M = [v, exp(beta v) - o]. For a block of keys over blocks of queries, P and dS rounded to
// bfloat16:
//   S = Q K^T      dP = G M^T      dQ += dS K      dM^T += G^T P      dK^T += Q^T dS
// dM and dK are summed transposed, so that P and dS are right operands as they are made, pairs of queries side by side.
#include "ops/softmax_read/cpu/bf16_pack.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kQueries = 192;  // as in bf16_forward.cpp: what a block takes stays in the second-level cache
constexpr int64_t kKeys = 256;
constexpr int64_t kScoreRow = kKeys + 16;  // odd numbers of cache lines
constexpr int64_t kGradRow = kKeys + 32;
static_assert(kQueries % kStrip == 0 && kStrip % kRowStep == 0 && kKeys % kColumns == 0);

// G carries half the guard of P: the unit takes numbers below 2^-126 as 0, and dz may be as small as dF e^-40.
constexpr float kHalfGuardDown = 1.0f / (1 << kGuard / 2);

struct Scratch {
  Bfloat16* key_t;      // panels of K^T          [even K x kKeys]
  Bfloat16* key_pairs;  // panels of K            [kKeys x K]
  Bfloat16* mixed_t;    // panels of M^T          [mixed x kKeys]
  Bfloat16* rounded;    // M                      [kKeys x mixed]
  Bfloat16* weights;    // panels of P            [kQueries x kKeys]
  Bfloat16* dweights;   // panels of dS           [kQueries x kKeys]
  Bfloat16* drows;      // rows of dS             [kQueries x kGradRow]
  float* mixed;         // M                      [kKeys x mixed]
  float* scores;        // S                      [kQueries x kScoreRow]
  float* dscores;       // dP                     [kQueries x kScoreRow]
  float* dkey_t;        // dK^T                   [columns of K x kKeys]
  float* dmixed_t;      // dM^T                   [mixed x kKeys]
  float* rows;          // dM, then dK            [kKeys x columns of either]
  int64_t floats = 0;

  Scratch(const Arguments& a, float* at) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    const auto take_halves = [&](int64_t count) { return next_halves_of(at, floats, count); };
    const int64_t mix = mixed_width(a), key = columns_of(a.key_width);
    key_t = take_halves(kKeys * even(a.key_width));
    key_pairs = take_halves(kKeys * round_up(a.key_width, kColumns));
    mixed_t = take_halves(kKeys * mix);
    rounded = take_halves(kKeys * mix);
    weights = take_halves(kQueries * kKeys);
    dweights = take_halves(kQueries * kKeys);
    drows = take_halves(kQueries * kGradRow);
    mixed = take(kKeys * mix);
    scores = take(kQueries * kScoreRow);
    dscores = take(kQueries * kScoreRow);
    dkey_t = take(kKeys * key);
    dmixed_t = take(kKeys * mix);
    rows = take(kKeys * greater(key, mix));
  }
};

// Rows of a head's queries and gradients, padded by rows of 0; as columns of Q^T and G^T an odd number of cache lines.
inline int64_t padded_queries(const Arguments& a) { return round_up(a.queries, kStrip) + 32; }

// The operands gather_rows leaves in the memory of a head.
struct HeadRows {
  Bfloat16 *query, *query_t;          // Q [padded queries x even K], Q^T
  Bfloat16 *gradients, *gradients_t;  // G [padded queries x mixed], G^T

  HeadRows(const Arguments& a, const GatheredRows& h)
      : query(reinterpret_cast<Bfloat16*>(h.query)),
        query_t(query + padded_queries(a) * even(a.key_width)),
        gradients(reinterpret_cast<Bfloat16*>(h.gradients)),
        gradients_t(gradients + padded_queries(a) * mixed_width(a)) {}
};

// What softmax_gradient needs to know of a block's queries; those past the last see nothing.
struct QueryBlock {
  int64_t begin, count;
  int32_t key_begin[kQueries], key_end[kQueries];
  float normalizer[kQueries], correction[kQueries];

  QueryBlock(const Backward& a, const HeadScratch& h, int64_t batch, int64_t head, int64_t begin)
      : begin(begin), count(lesser(kQueries, a.queries - begin)) {
    for (int64_t m = 0; m < kQueries; ++m) {
      const bool real = m < count;
      const int64_t t = begin + m;
      key_begin[m] = real ? a.key_begin[t] : 0;
      key_end[m] = real ? a.key_end[t] : 0;
      normalizer[m] = real ? a.log_normalizer[(batch * a.queries + t) * a.heads + head] : 0;
      correction[m] = real ? h.correction[t] : 0;
    }
  }
};

// S and dP -> P and dS of queries [m, m + rows); visible(m, n, x) is 0 on lanes of keys that query m does not see.
template <typename Visible>
void softmax_gradient(const Arguments& a, const Scratch& s, const QueryBlock& q, int64_t m, int64_t rows, Range keys,
                      Visible&& visible) {
  for (int64_t r = m; r < m + rows; r += 2) {
    for (int64_t n = keys.from; n < keys.to; n += kLanes) {
      Words p[2], ds[2];
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t query = r + i, place = query * kScoreRow + n;
        const Floats weight = visible(query, n, exp<kGuard>(load(s.scores + place) * a.scale - q.normalizer[query]));
        const Floats dscore = weight * (load(s.dscores + place) - q.correction[query]) * kHalfGuardDown;
        p[i] = rounded(weight);
        ds[i] = rounded(visible(query, n, dscore));
        store_upper(s.drows + query * kGradRow + n, ds[i]);
      }
      const int64_t place = n / kColumns * kQueries * kColumns + r * kColumns + n % kColumns * 2;
      store_words(s.weights + place, pair(p[0], p[1]));
      store_words(s.dweights + place, pair(ds[0], ds[1]));
    }
  }
}

// What the key block gets from, and gives to, queries [m, m + count) of a block.
void strip(const Backward& a, const Scratch& s, const HeadRows& h, float* grad_query, const QueryBlock& q, int64_t m,
           int64_t count, int64_t base, int64_t keys_here, const int32_t* index, bool whole) {
  const Range keys = panels_seen(q.key_begin[m], q.key_end[m + count - 1], base, keys_here);
  if (keys.from == keys.to) return;
  const MatrixUnit& unit = *a.unit;
  const int64_t rows = round_up(count, kRowStep), first = q.begin + m, row_length = padded_queries(a);
  const int64_t depth = even(a.key_width), mix = mixed_width(a), key_columns = columns_of(a.key_width);
  // S <- Q K^T
  multiply(unit, rows, keys, depth, h.query + first * depth, depth, s.key_t, depth, s.scores + m * kScoreRow, kScoreRow,
           /*add=*/false);
  // dP <- G M^T
  multiply(unit, rows, keys, mix, h.gradients + first * mix, mix, s.mixed_t, mix, s.dscores + m * kScoreRow, kScoreRow,
           /*add=*/false);
  if (whole && rows == count)
    softmax_gradient(a, s, q, m, rows, keys, [](int64_t, int64_t, Floats x) { return x; });
  else
    softmax_gradient(a, s, q, m, rows, keys, [&](int64_t query, int64_t n, Floats x) {
      const Ints key = load(index + n);
      return select((key >= q.key_begin[query]) & (key < q.key_end[query]), x, Floats{});
    });
  // dQ <- dQ + dS K
  multiply(unit, rows, {0, key_columns}, keys.to - keys.from, s.drows + m * kGradRow + keys.from, kGradRow,
           s.key_pairs + keys.from * kColumns, kKeys, grad_query + first * key_columns, key_columns, /*add=*/true);
  // dM^T <- dM^T + G^T P
  multiply(unit, mix, keys, rows, h.gradients_t + first, row_length, s.weights + m * kColumns, kQueries, s.dmixed_t,
           kKeys, /*add=*/true);
  // dK^T <- dK^T + Q^T dS
  multiply(unit, a.key_width, keys, rows, h.query_t + first, row_length, s.dweights + m * kColumns, kQueries, s.dkey_t,
           kKeys, /*add=*/true);
}

void pack_block(const Backward& a, const Scratch& s, int64_t batch, int64_t head, int64_t base, int64_t count) {
  const int64_t mix = mixed_width(a), padded_count = round_up(count, kColumns);
  const KeyRows keys(a, batch, head, base, count);
  pack_transposed(s.key_t, padded_count, even(a.key_width), [&](int64_t n, int64_t w) { return keys.words(n, w); });
  for (int64_t c = 0; c < a.key_width; c += kLanes)
    for (int64_t n = 0; n < padded_count; n += 2)
      store_words(s.key_pairs + c / kColumns * kKeys * kColumns + n * kColumns + c % kColumns * 2,
                  pair(keys.upper(n, c), keys.upper(n + 1, c)));
  mix_keys<Bfloat16>(a, batch, head, base, count, [&](int64_t n, int64_t c, Floats x) {
    store(s.mixed + n * mix + c, x);
    store(s.rounded + n * mix + c, x);
  });
  pack_transposed(s.mixed_t, padded_count, mix, [&](int64_t n, int64_t w) {
    Words x{};
    if (n < count) std::memcpy(&x, s.rounded + n * mix + 2 * w, lesser(sizeof(x), 2 * (mix - 2 * w)));
    return x;
  });
}

// rows [count x width] <- sums^T
void transpose(float* rows, const float* sums, int64_t count, int64_t width) {
  transpose_words(reinterpret_cast<Bfloat16*>(rows), width, width, count,
                  [&](int64_t c, int64_t n) { return load_as<Words>(sums + c * kKeys + n); });
}

void write_block(const Backward& a, const Scratch& s, float* grad_beta, int64_t batch, int64_t head, int64_t base,
                 int64_t count) {
  const int64_t mix = mixed_width(a), key_columns = columns_of(a.key_width);
  const float* beta = a.beta ? a.beta + head * a.value_width : nullptr;
  const float* offset = offset_of(a, batch, head);
  transpose(s.rows, s.dmixed_t, count, mix);
  for (int64_t n = 0; n < count; ++n) {
    const float *dmixed = s.rows + n * mix, *mixed = s.mixed + n * mix;
    Bfloat16* grad_value = output_row<Bfloat16>(a.grad_value, batch, base + n, head);
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) {
      Floats dv = load(dmixed + c) * kHalfGuardDown;
      if (beta) {
        const int64_t e = part_width(a) + c;
        const Floats de = (load(mixed + e) + get(offset + c)) * (load(dmixed + e) * kHalfGuardDown);  // e dM_e
        dv += get(beta + c) * de;
        put(grad_beta + c, get(grad_beta + c) + load(mixed + c) * de);
      }
      put(grad_value + c, dv);
    });
  }
  transpose(s.rows, s.dkey_t, count, key_columns);
  for (int64_t n = 0; n < count; ++n) {
    Bfloat16* grad_key = output_row<Bfloat16>(a.grad_key, batch, base + n, head);
    for_vectors(a.key_width, [&](int64_t c, auto&&, auto&& put) {
      put(grad_key + c, load(s.rows + n * key_columns + c) * a.scale);
    });
  }
}

void key_block(const Backward& a, const Scratch& s, const HeadScratch& h, int64_t batch, int64_t head, int64_t base) {
  const int64_t keys = lesser(kKeys, a.keys - base);
  const HeadRows rows(a, h);
  pack_block(a, s, batch, head, base, keys);
  std::memset(s.dkey_t, 0, kKeys * columns_of(a.key_width) * sizeof(float));
  std::memset(s.dmixed_t, 0, kKeys * mixed_width(a) * sizeof(float));
  int32_t index[kKeys];  // a key's position, or one that no query sees
  for (int64_t n = 0; n < kKeys; ++n) {
    const bool real = n < keys && (!a.key_mask || a.key_mask[batch * a.keys + base + n]);
    index[n] = real ? static_cast<int32_t>(base + n) : -1;
  }
  const int64_t first = a.query_begin[base], last = a.query_end[base + keys - 1];
  for (int64_t begin = first / kQueries * kQueries; begin < last; begin += kQueries) {
    const QueryBlock q(a, h, batch, head, begin);
    const bool all = keys == kKeys && q.key_begin[q.count - 1] <= base && q.key_end[0] >= base + keys;
    const int64_t step = all ? kQueries : kStrip;
    for (int64_t m = 0; m < q.count; m += step)
      strip(a, s, rows, h.grad_query, q, m, lesser(step, q.count - m), base, keys, index, all && !a.key_mask);
  }
  write_block(a, s, h.grad_beta, batch, head, base, keys);
}

}  // namespace

namespace bf16::FEM_ISA {

Blocks backward_blocks(const Arguments& a) { return {kQueries, kKeys, Scratch(a, nullptr).floats}; }

int64_t query_rows(const Arguments& a) { return padded_queries(a); }

int64_t padded_key_width(const Arguments& a) { return columns_of(a.key_width); }

int64_t gradient_row_width(const Arguments& a) { return mixed_width(a); }

void gather_rows(const Backward& a, int64_t item, int64_t begin, int64_t end, const GatheredRows& h) {
  const int64_t batch = item / a.heads, head = item % a.heads, width = a.value_width, rows = padded_queries(a);
  const int64_t depth = even(a.key_width), mix = mixed_width(a);
  const float* beta = a.beta ? a.beta + head * width : nullptr;
  const float* offset = offset_of(a, batch, head);
  const HeadRows to(a, h);
  std::memset(to.query + begin * depth, 0, (end - begin) * depth * sizeof(Bfloat16));
  std::memset(to.gradients + begin * mix, 0, (end - begin) * mix * sizeof(Bfloat16));
  for (int64_t t = begin; t < lesser(end, a.queries); ++t) {
    std::memcpy(to.query + t * depth, row<Bfloat16>(a.query, batch, t, head), a.key_width * sizeof(Bfloat16));
    const Bfloat16* mean = row<Bfloat16>(a.mean, batch, t, head);
    const Bfloat16* grad_mean = row<Bfloat16>(a.grad_mean, batch, t, head);
    const float* free_energy = row<float>(a.free_energy, batch, t, head);
    const float* grad_free_energy = row<float>(a.grad_free_energy, batch, t, head);
    Bfloat16* gradients = to.gradients + t * mix;
    Floats correction{};
    for_vectors(width, [&](int64_t c, auto&& get, auto&&) {
      const Floats dmean = get(grad_mean + c);
      store(gradients + c, dmean * kHalfGuardDown);
      correction += dmean * get(mean + c);
      if (!beta) return;
      const Floats b = get(beta + c), share = over_beta(get(grad_free_energy + c), b);
      const Floats dz = share * exp(-b * get(free_energy + c));
      store(gradients + part_width(a) + c, dz * kHalfGuardDown);
      correction += share - get(offset + c) * dz;  // sum_i p dz (e - o)
    });
    h.correction[t] = sum(correction) * kHalfGuardDown;
  }
  const auto turned = [&](Bfloat16* turned_rows, const Bfloat16* from, int64_t row_width, int64_t columns) {
    transpose_words(turned_rows + begin, rows / 2, (end - begin) / 2, columns, [&](int64_t r, int64_t c) {
      const Bfloat16* x = from + (begin + 2 * r) * row_width + c;
      // Another thread may be writing the row below.
      return pair(load_upper(x, row_width - c), load_upper(x + row_width, row_width - c));
    });
  };
  turned(to.query_t, to.query, depth, a.key_width);
  turned(to.gradients_t, to.gradients, mix, mix);
}

void backward(const Backward& a, int64_t item, int64_t begin, int64_t end, const HeadScratch& h) {
  const Scratch s(a, h.tiles);
  for (int64_t block = begin; block < end; ++block) key_block(a, s, h, item / a.heads, item % a.heads, block * kKeys);
  a.unit->release();
}

void write_grad_query(const Backward& a, int64_t item, int64_t begin, int64_t end, float* const* parts, int64_t count) {
  const int64_t batch = item / a.heads, head = item % a.heads, columns = columns_of(a.key_width);
  for (int64_t t = begin; t < end; ++t) {
    Bfloat16* to = output_row<Bfloat16>(a.grad_query, batch, t, head);
    for_vectors(a.key_width, [&](int64_t c, auto&&, auto&& put) {
      Floats total{};
      for (int64_t part = 0; part < count; ++part) total += load(parts[part] + t * columns + c);
      put(to + c, total * a.scale);
    });
  }
}

}  // namespace bf16::FEM_ISA
}  // namespace fem::softmax_kernels
