// Backward kernel. With rows G = [dmean, dz], dz = dF / (beta z), and M = [v, exp(beta v)], for a block of keys over
// blocks of queries (README.md has the derivation):
//   S  = Q K^T, P = exp(S - lse)      dP = G M^T      dS = P (dP - correction)
//   dM += P^T G      dK += dS^T Q      dQ += dS K
// and at the end dv = dM_v + beta e dM_e, dbeta = sum v e dM_e - sum dF F / beta.
#include "ops/softmax_read/cpu/common.h"

namespace fem::softmax_kernels {
namespace {

constexpr int64_t kQueries = 192;  // docs/performance_log.md, "block sizes of the softmax read"
constexpr int64_t kKeys = 192;
constexpr int64_t kScoreRow = kKeys + 16;  // an odd number of cache lines, as in forward.cpp
static_assert(kKeys % kPanel == 0 && kQueries % kTileRows == 0 && kKeys % kTileRows == 0);

struct Scratch {
  float* query_panels;  // scaled Q           [kQueries x padded K]
  float* grad_panels;   // G                  [kQueries x padded mixed]
  float* key_t;         // K^T                [K x kKeys]
  float* key_panels;    // K                  [kKeys x padded K]
  float* mixed;         // M rows             [kKeys x mixed]
  float* mixed_t;       // M^T                [mixed x kKeys]
  float* weights;       // S, then P          [kQueries x kScoreRow]
  float* dscores;       // dP, then dS        [kQueries x kScoreRow]
  float* dkey;          // dK                 [kKeys x padded K]
  float* dmixed;        // dM                 [kKeys x padded mixed]
  int64_t floats = 0;

  Scratch(const Arguments& a, float* at) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    const int64_t key = padded(a.key_width), mix = padded(mixed_width(a));
    query_panels = take(kQueries * key);
    grad_panels = take(kQueries * mix);
    key_t = take(kKeys * a.key_width);
    key_panels = take(kKeys * key);
    mixed = take(kKeys * mixed_width(a));
    mixed_t = take(kKeys * mixed_width(a));
    weights = take(kQueries * kScoreRow);
    dscores = take(kQueries * kScoreRow);
    dkey = take(kKeys * key);
    dmixed = take(kKeys * mix);
  }
};

// S -> P and dP -> dS, row by row; hide(m, n) tells which lanes of keys query m may see.
template <typename Visible>
void softmax_gradient(const Scratch& s, const float* lse, int64_t lse_step, const float* correction, int64_t queries,
                      int64_t keys, Visible&& visible) {
  for (int64_t m = 0; m < queries; ++m) {
    float* weights = s.weights + m * kScoreRow;
    float* dscores = s.dscores + m * kScoreRow;
    const float normalizer = lse[m * lse_step], correct = correction[m];
    for (int64_t n = 0; n < keys; n += kLanes) {
      const Floats p = visible(m, n, exp<kGuard>(load(weights + n) - normalizer));
      const Floats ds = visible(m, n, p * (load(dscores + n) - correct));
      store(weights + n, p);
      store(dscores + n, ds);
    }
  }
}

// What the key block gets from queries [begin, begin + count).
void query_block(const Backward& a, const Scratch& s, const HeadScratch& h, int64_t batch, int64_t head, int64_t base,
                 int64_t keys, int64_t begin, int64_t count) {
  const int64_t key_columns = padded(a.key_width), mix = mixed_width(a), mixed_columns = padded(mix);
  const float* gradients = h.gradients + begin * mix;
  const float* query = h.query + begin * a.key_width;
  pack_panels(s.query_panels, kQueries, query, a.key_width, count, a.key_width);
  pack_panels(s.grad_panels, kQueries, gradients, mix, count, mix);

  // Keys that queries [first, last] see, and queries that see keys [first, last], counted from the blocks' starts.
  const auto seen_keys = [&](int64_t first, int64_t last) {
    return clamp(a.key_begin[begin + first] - base, a.key_end[begin + last] - base, keys);
  };
  const auto seeing_queries = [&](int64_t first, int64_t last) {
    return clamp(a.query_begin[base + first] - begin, a.query_end[base + lesser(last, keys - 1)] - begin, count);
  };
  for (int64_t n = 0; n < keys; n += kPanel) {
    const Range rows = seeing_queries(n, n + kPanel - 1);
    // S <- Q K^T
    multiply_panel<false>(rows.from, rows.to, {query, a.key_width, 1}, s.key_t + n * a.key_width, s.weights + n,
                          kScoreRow, [&](int64_t, int64_t) { return Range{0, a.key_width}; });
    // dP <- G M^T
    multiply_panel<false>(rows.from, rows.to, {gradients, mix, 1}, s.mixed_t + n * mix, s.dscores + n, kScoreRow,
                          [&](int64_t, int64_t) { return Range{0, mix}; });
  }

  if (is_biased(a))
    for (int64_t m = 0; m < count; ++m)
      for (int64_t n = 0; n < keys; ++n) s.weights[m * kScoreRow + n] += bias_of(a, head, begin + m, base + n);

  const float* lse = a.log_normalizer + (batch * a.queries + begin) * a.heads + head;
  const bool all_visible =
      !a.key_mask && keys == kKeys && a.key_begin[begin + count - 1] <= base && a.key_end[begin] >= base + keys;
  if (all_visible) {
    softmax_gradient(s, lse, a.heads, h.correction + begin, count, keys, [](int64_t, int64_t, Floats x) { return x; });
  } else {
    int32_t index[kKeys];  // a key's position, or one that no query sees
    for (int64_t n = 0; n < kKeys; ++n) {
      const bool real = n < keys && (!a.key_mask || a.key_mask[batch * a.keys + base + n]);
      index[n] = real ? static_cast<int32_t>(base + n) : -1;
    }
    softmax_gradient(s, lse, a.heads, h.correction + begin, count, round_up(keys, kLanes),
                     [&](int64_t m, int64_t n, Floats x) {
                       const Ints key = load(index + n);
                       return select((key >= a.key_begin[begin + m]) & (key < a.key_end[begin + m]), x, Floats{});
                     });
  }

  if (a.grad_bias)
    for (int64_t m = 0; m < count; ++m) {
      float* to = a.grad_bias + head * a.bias.head + (begin + m) * a.keys + base;
      const Range seen = seen_keys(m, m);
      for (int64_t n = seen.from; n < seen.to; ++n) to[n] += s.dscores[m * kScoreRow + n];
    }

  // dM <- dM + P^T G
  for (int64_t c = 0; c < mixed_columns; c += kPanel)
    multiply_panel<true>(0, keys, {s.weights, 1, kScoreRow}, s.grad_panels + c * kQueries, s.dmixed + c, mixed_columns,
                         seeing_queries);
  for (int64_t c = 0; c < key_columns; c += kPanel) {
    // dK <- dK + dS^T Q
    multiply_panel<true>(0, keys, {s.dscores, 1, kScoreRow}, s.query_panels + c * kQueries, s.dkey + c, key_columns,
                         seeing_queries);
    // dQ <- dQ + dS K
    multiply_panel<true>(0, count, {s.dscores, kScoreRow, 1}, s.key_panels + c * kKeys,
                         h.grad_query + begin * key_columns + c, key_columns, seen_keys);
  }
}

template <typename Scalar>
void key_block(const Backward& a, const Scratch& s, const HeadScratch& h, int64_t batch, int64_t head, int64_t base) {
  const int64_t keys = lesser(kKeys, a.keys - base);
  const int64_t key_columns = padded(a.key_width), mix = mixed_width(a), mixed_columns = padded(mix);
  const Scalar* key = row<Scalar>(a.key, batch, base, head);
  pack_panels_transposed(s.key_t, key, a.key.token, keys, a.key_width);
  pack_panels(s.key_panels, kKeys, key, a.key.token, keys, a.key_width);
  if (a.key_mask)  // whatever a masked key holds, even NaN, must not meet dS = 0
    for (int64_t n = 0; n < keys; ++n)
      for (int64_t c = 0; !a.key_mask[batch * a.keys + base + n] && c < key_columns; c += kPanel)
        std::memset(s.key_panels + c * kKeys + n * kPanel, 0, kPanel * sizeof(float));
  mix_keys<Scalar>(a, batch, head, base, keys,
                   [&](int64_t n, int64_t c, Floats x) { store(s.mixed + n * mix + c, x); });
  pack_panels_transposed(s.mixed_t, s.mixed, mix, keys, mix);
  std::memset(s.dkey, 0, keys * key_columns * sizeof(float));
  std::memset(s.dmixed, 0, keys * mixed_columns * sizeof(float));

  const int64_t first = a.query_begin[base], last = a.query_end[base + keys - 1];
  for (int64_t begin = first / kQueries * kQueries; begin < last; begin += kQueries)
    query_block(a, s, h, batch, head, base, keys, begin, lesser(kQueries, a.queries - begin));

  const float* beta = a.beta ? a.beta + head * a.value_width : nullptr;
  for (int64_t n = 0; n < keys; ++n) {
    Scalar* grad_key = output_row<Scalar>(a.grad_key, batch, base + n, head);
    for_vectors(a.key_width,
                [&](int64_t c, auto&&, auto&& put) { put(grad_key + c, load(s.dkey + n * key_columns + c)); });
    const float* dmixed = s.dmixed + n * mixed_columns;
    const float* mixed = s.mixed + n * mix;
    Scalar* grad_value = output_row<Scalar>(a.grad_value, batch, base + n, head);
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) {
      Floats dv = load(dmixed + c);
      if (beta) {
        const Floats de = load(mixed + part_width(a) + c) * load(dmixed + part_width(a) + c);  // e dM_e
        dv += get(beta + c) * de;
        put(h.grad_beta + c, get(h.grad_beta + c) + load(mixed + c) * de);
      }
      put(grad_value + c, dv);
    });
  }
}

}  // namespace

namespace FEM_ISA {

Blocks backward_blocks(const Arguments& a) { return {kQueries, kKeys, Scratch(a, nullptr).floats}; }

int64_t padded_key_width(const Arguments& a) { return padded(a.key_width); }

int64_t gradient_row_width(const Arguments& a) { return mixed_width(a); }

void gather_rows(const Backward& a, int64_t item, int64_t begin, int64_t end, const GatheredRows& h) {
  const int64_t batch = item / a.heads, head = item % a.heads, width = a.value_width;
  const float* beta = a.beta ? a.beta + head * width : nullptr;
  with_scalar(a, [&](auto scalar) {
    using Scalar = decltype(scalar);
    pack_rows(h.query + begin * a.key_width, row<Scalar>(a.query, batch, begin, head), a.query.token, end - begin,
              a.key_width, a.scale);
    for (int64_t t = begin; t < end; ++t) {
      const Scalar* mean = row<Scalar>(a.mean, batch, t, head);
      const Scalar* grad_mean = row<Scalar>(a.grad_mean, batch, t, head);
      const float* free_energy = row<float>(a.free_energy, batch, t, head);
      const float* grad_free_energy = row<float>(a.grad_free_energy, batch, t, head);
      float* to = h.gradients + t * mixed_width(a);
      Floats correction{};
      for_vectors(width, [&](int64_t c, auto&& get, auto&&) {
        const Floats dmean = get(grad_mean + c);
        store(to + c, dmean * kGuardDown);
        correction += dmean * get(mean + c);
        if (!beta) return;
        const Floats b = get(beta + c), share = over_beta(get(grad_free_energy + c), b);
        store(to + part_width(a) + c, share * exp(-b * get(free_energy + c)) * kGuardDown);
        correction += share;
      });
      h.correction[t] = sum(correction) * kGuardDown;
    }
  });
}

void grad_beta_of_queries(const Backward& a, int64_t item, float* grad_beta) {
  const int64_t batch = item / a.heads, head = item % a.heads;
  const float* beta = a.beta + head * a.value_width;
  for (int64_t t = 0; t < a.queries; ++t) {
    const float* free_energy = row<float>(a.free_energy, batch, t, head);
    const float* grad_free_energy = row<float>(a.grad_free_energy, batch, t, head);
    for_vectors(a.value_width, [&](int64_t c, auto&& get, auto&& put) {
      const Floats share = over_beta(get(grad_free_energy + c), get(beta + c));
      put(grad_beta + c, get(grad_beta + c) - share * get(free_energy + c));
    });
  }
}

void backward(const Backward& a, int64_t item, int64_t begin, int64_t end, const HeadScratch& h) {
  const Scratch s(a, h.tiles);
  with_scalar(a, [&](auto scalar) {
    for (int64_t block = begin; block < end; ++block)
      key_block<decltype(scalar)>(a, s, h, item / a.heads, item % a.heads, block * kKeys);
  });
}

void write_grad_query(const Backward& a, int64_t item, int64_t begin, int64_t end, float* const* parts, int64_t count) {
  const int64_t batch = item / a.heads, head = item % a.heads;
  with_scalar(a, [&](auto scalar) {
    for (int64_t t = begin; t < end; ++t) {
      auto* to = output_row<decltype(scalar)>(a.grad_query, batch, t, head);
      for_vectors(a.key_width, [&](int64_t c, auto&&, auto&& put) {
        Floats total{};
        for (int64_t part = 0; part < count; ++part) total += load(parts[part] + t * padded(a.key_width) + c);
        put(to + c, total * a.scale);
      });
    }
  });
}

}  // namespace FEM_ISA
}  // namespace fem::softmax_kernels
