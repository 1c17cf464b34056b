// Backward kernel, of a block of queries beside all keys that they see (README.md has the derivation):
//   P = exp(S - lse), R = G U^T - M.G, E = dO V^T, e = sum_i P E        D = alpha P (E - e), dG = D U
//   W = P (1 + alpha R)     dP = E (1 + alpha R) - alpha e (R + M.G) + dG U^T     dS = P (dP - sum_i P dP)
//   dQ = scale dS K - rho dG     dK += scale dS^T Q     dV += W^T dO     dU += D^T G + P^T dG     dalpha += sum E P R
#include "ops/newton_read/cpu/strip.h"

namespace fem::newton_kernels {
namespace {

// Rows of a block's queries, as they are and in panels.
struct RowsAndPanels {
  float *rows, *panels;

  RowsAndPanels(Memory& memory, int64_t width)
      : rows(memory.take(kQueries * padded(width))), panels(memory.take(kQueries * padded(width))) {}

  void pack(int64_t row, int64_t count, int64_t width) const { pack_panels(panels, kQueries, rows, row, count, width); }
};

struct Scratch {
  Memory memory;
  RowsAndPanels query, grad, g, dg;   // Q scaled, dO, G, dG
  float* dquery;                      // [kQueries x padded K]
  float* mean_g;                      // M.G [kQueries]
  float *p, *w, *ds, *d, *tilt_back;  // strips: P; R, then W; E, then dS; D; dG U^T

  Scratch(const Arguments& a, float* at)
      : memory{at},
        query(memory, a.key_width),
        grad(memory, a.value_width),
        g(memory, a.space_width()),
        dg(memory, a.space_width()),
        dquery(memory.take(kQueries * padded(a.key_width))),
        mean_g(memory.take(kQueries)) {
    for (float** strip : {&p, &w, &ds, &d, &tilt_back}) *strip = memory.take(kQueries * strip_row(a));
  }
};

// What a head's blocks add up to.
struct Sums {
  float *key, *value, *alpha;  // [keys x padded K], [keys x padded V], [1]
  int64_t floats;

  Sums(const Arguments& a, float* at) {
    Memory memory{at};
    key = memory.take(a.keys * padded(a.key_width));
    value = memory.take(a.keys * padded(a.value_width));
    alpha = memory.take(kLanes);
    floats = memory.floats;
  }
};

// E becomes D in a strip of its own; S becomes P and R is taken from its mean. Returns e.
float first_pass(const Block& block, const Scratch& s, int64_t m, float log_normalizer, float alpha, float& dalpha) {
  const int64_t at = m * strip_row(block.a);
  float *p = s.p + at, *r = s.w + at, *d = s.d + at;
  const float *e = s.ds + at, mean_g = s.mean_g[m];
  hide(block, p, m);
  Floats mean{}, tilted{};
  const float shift = log_normalizer > -kInfinity ? log_normalizer : 0;
  for_keys(block, [&](int64_t n) {
    const Floats weight = exp(load(p + n) - shift), tilt = load(r + n) - mean_g, weighted = weight * load(e + n);
    store(p + n, weight);
    store(r + n, tilt);
    mean += weighted;
    tilted += weighted * tilt;
  });
  const float total = sum(mean);
  dalpha += sum(tilted);
  for_keys(block, [&](int64_t n) { store(d + n, alpha * load(p + n) * (load(e + n) - total)); });
  return total;
}

// R becomes W, E becomes dS.
void second_pass(const Block& block, const Scratch& s, int64_t m, float mean_e, float alpha) {
  const int64_t at = m * strip_row(block.a);
  float *w = s.w + at, *ds = s.ds + at;
  const float *p = s.p + at, *back = s.tilt_back + at, mean_g = s.mean_g[m];
  Floats correction{};
  for_keys(block, [&](int64_t n) {
    const Floats weight = load(p + n), tilt = load(w + n), factor = 1 + alpha * tilt;
    const Floats dp = load(ds + n) * factor - alpha * mean_e * (tilt + mean_g) + load(back + n);
    store(w + n, weight * factor);
    store(ds + n, dp);
    correction += weight * dp;
  });
  const float total = sum(correction);
  for_keys(block, [&](int64_t n) { store(ds + n, load(p + n) * (load(ds + n) - total)); });
}

template <typename Scalar>
void query_block(const Backward& a, const Scratch& s, const Sums& sums, int64_t head, int64_t index) {
  const Block block(a, head, index);
  const PackedHead packed(a, head);
  const int64_t space = a.space_width(), space_columns = padded(space), count = block.count;
  const float alpha = a.alpha[block.head];
  pack_rows(s.query.rows, row<Scalar>(a.query, block.batch, block.begin, block.head), a.query.token, count, a.key_width,
            a.scale);
  pack_rows(s.grad.rows, row<Scalar>(a.grad_read, block.batch, block.begin, block.head), a.grad_read.token, count,
            a.value_width);
  gradient_rows(block, s.g.rows, s.mean_g, a.mean + block.place(0) * space, a.heads * space, s.query.rows);

  products(block, s.p, {s.query.rows, a.key_width, 1}, a.key_width, packed.key_t);
  products(block, s.w, {s.g.rows, space, 1}, space, packed.space_t(a));
  products(block, s.ds, {s.grad.rows, a.value_width, 1}, a.value_width, packed.value_t);
  float mean_e[kQueries];
  for (int64_t m = 0; m < count; ++m)
    mean_e[m] = first_pass(block, s, m, a.log_normalizer[block.place(m)], alpha, *sums.alpha);
  mix(block, s.dg.rows, s.d, packed.space(a), space);
  products(block, s.tilt_back, {s.dg.rows, space_columns, 1}, space, packed.space_t(a));
  for (int64_t m = 0; m < count; ++m) second_pass(block, s, m, mean_e[m], alpha);

  mix(block, s.dquery, s.ds, packed.key, a.key_width);
  for (int64_t m = 0; m < count; ++m) {
    Scalar* to = static_cast<Scalar*>(a.grad_query) + block.place(m) * a.key_width;
    for_vectors(a.key_width, [&](int64_t c, auto&& get, auto&& put) {
      const Floats own = a.scale * get(s.dquery + m * padded(a.key_width) + c);
      put(to + c, a.of_values ? own : own - a.rho * get(s.dg.rows + m * space_columns + c));
    });
  }
  s.query.pack(a.key_width, count, a.key_width);
  s.grad.pack(a.value_width, count, a.value_width);
  s.g.pack(space, count, space);
  s.dg.pack(space_columns, count, space);
  float* space_sums = a.of_values ? sums.value : sums.key;
  mix_transposed(block, sums.key, s.ds, s.query.panels, a.key_width);
  mix_transposed(block, sums.value, s.w, s.grad.panels, a.value_width);
  mix_transposed(block, space_sums, s.d, s.g.panels, space);
  mix_transposed(block, space_sums, s.p, s.dg.panels, space);
}

// Rows of dkey or dvalue of a head: the sums of all parts, in their order.
template <typename Scalar>
void write_rows(const Backward& a, void* to, int64_t head, const float* sums, int64_t part_floats, int64_t parts,
                int64_t width) {
  for (int64_t n = 0; n < a.keys; ++n) {
    Scalar* row = static_cast<Scalar*>(to) + ((head / a.heads * a.keys + n) * a.heads + head % a.heads) * width;
    for_vectors(width, [&](int64_t c, auto&& get, auto&& put) {
      Floats total{};
      for (int64_t part = 0; part < parts; ++part) total += get(sums + part * part_floats + n * padded(width) + c);
      put(row + c, total);
    });
  }
}

}  // namespace

namespace FEM_ISA {

int64_t sums_floats(const Arguments& a) { return Sums(a, nullptr).floats; }

int64_t backward_floats(const Arguments& a) { return Scratch(a, nullptr).memory.floats; }

void backward(const Backward& a, int64_t head, int64_t begin, int64_t end, float* sums, float* scratch) {
  with_scalar(a, [&](auto scalar) {
    for (int64_t block = begin; block < end; ++block)
      query_block<decltype(scalar)>(a, Scratch(a, scratch), Sums(a, sums), head, block);
  });
}

float write_sums(const Backward& a, int64_t head, const float* sums, int64_t parts) {
  const Sums first(a, const_cast<float*>(sums));
  float dalpha = 0;
  for (int64_t part = 0; part < parts; ++part) dalpha += first.alpha[part * first.floats];
  with_scalar(a, [&](auto scalar) {
    write_rows<decltype(scalar)>(a, a.grad_key, head, first.key, first.floats, parts, a.key_width);
    write_rows<decltype(scalar)>(a, a.grad_value, head, first.value, first.floats, parts, a.value_width);
  });
  return dalpha;
}

}  // namespace FEM_ISA
}  // namespace fem::newton_kernels
