// What the backward kernel works on, and its ways in and out: rows of tensors to and from scratch memory.
#pragma once

#include "ops/linear_read/cpu/common.h"

namespace fem::linear_kernels {
namespace {

struct Scratch {
  int64_t key_row, mixed_row;          // row lengths of left factors: odd numbers of cache lines
  int64_t key_columns, mixed_columns;  // row lengths of results: whole panels
  float* query;                        // Q, later scaled      [kChunk x key_row]
  float* query_panels;                 // Q                    [kChunk x key_columns]
  float* key;                          // K, later scaled      [kChunk x key_row]
  float* key_panels;                   // K                    [kChunk x key_columns]
  float* key_t;                        // K^T                  [K x kChunk]
  float* mixed;                        // X                    [kChunk x mixed_row]
  float* mixed_t;                      // X^T                  [mixed x kChunk]
  float* grad;                         // dO                   [kChunk x mixed_row]
  float* grad_panels;                  // dO                   [kChunk x mixed_columns]
  float* grad_one;                     // dO_1                 [kChunk]
  float* weights;                      // A                    [kChunk x kWeightRow]
  float* dweights;                     // dA                   [kChunk x kWeightRow]
  float* result;                       // dQ, dK, then dX      [kChunk x the wider]
  float* dbeta;                        // of a chunk           [V]
  float* dstates;                      // dS, ds of some heads
  float* dstate_t;                     // dS^T panels          [mixed x key_columns]
  float* states;                       // S^T panels and s of every chunk of a group
  int64_t state_floats;                // of one of them
  int64_t floats = 0;

  Scratch(const Arguments& a, float* at)
      : key_row(odd_lines(a.key_width)),
        mixed_row(odd_lines(mixed_width(a))),
        key_columns(padded(a.key_width)),
        mixed_columns(padded(mixed_width(a))),
        state_floats((mixed_width(a) + 1) * key_columns) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    query = take(kChunk * key_row);
    query_panels = take(kChunk * key_columns);
    key = take(kChunk * key_row);
    key_panels = take(kChunk * key_columns);
    key_t = take(kChunk * a.key_width);
    mixed = take(kChunk * mixed_row);
    mixed_t = take(kChunk * mixed_width(a));
    grad = take(kChunk * mixed_row);
    grad_panels = take(kChunk * mixed_columns);
    grad_one = take(kChunk);
    weights = take(kChunk * kWeightRow);
    dweights = take(kChunk * kWeightRow);
    result = take(kChunk * (key_columns > mixed_columns ? key_columns : mixed_columns));
    dbeta = take(part_width(a));
    dstates = take(heads_at_once(a) * State::floats(a));
    dstate_t = take(mixed_width(a) * key_columns);
    states = take(state_floats * (a.group_tokens / kChunk));
  }
  float* state(int64_t index) const { return states + index * state_floats; }
  float* one(const Arguments& a, int64_t index) const { return state(index) + mixed_width(a) * key_columns; }
};

// Row-major [K, X] -> S^T panels and s; null is the empty state.
inline void load_transposed(const Arguments& a, const Scratch& s, const float* from) {
  std::memset(s.state(0), 0, s.state_floats * sizeof(float));
  if (!from) return;
  const int64_t width = row_state_width(a);
  for_parts(a, [&](int64_t column, int64_t panel_row) {
    transpose_to_panels(s.state(0) + panel_row * kPanel, mixed_width(a), from + column, width, a.key_width,
                        a.value_width);
  });
  for (int64_t k = 0; k < a.key_width; ++k) s.one(a, 0)[k] = from[(k + 1) * width - 1];
}

template <typename Scalar>
inline void mix_rows(const Arguments& a, const Scratch& s, const Chunk& c) {
  mix<Scalar>(a, c, [&](int64_t n, int64_t column, Floats x) { store(s.mixed + n * s.mixed_row + column, x); });
}

template <typename Number>
inline const Number* row_or_null(const Rows& rows, const Chunk& c, int64_t n) {
  return rows.data ? row<Number>(rows, c.batch, c.begin + n, c.head) : nullptr;
}

// Rows dO and dO_1 from the gradients of the reads; with dbeta also the part of beta that F = log(.) / beta has.
template <typename Scalar>
inline void gather_gradients(const Backward& a, const Scratch& s, const Chunk& c, bool with_dbeta) {
  const int64_t width = a.value_width, part = part_width(a);
  const float* beta = a.beta ? a.beta + c.head * width : nullptr;
  for (int64_t n = 0; n < c.count; ++n) {
    const Scalar *mean = row_or_null<Scalar>(a.mean, c, n), *grad_mean = row_or_null<Scalar>(a.grad_mean, c, n);
    const float* free_energy = row_or_null<float>(a.free_energy, c, n);
    const float* grad_free = row_or_null<float>(a.grad_free_energy, c, n);
    const float log_total = *row<float>(a.log_normalizer, c.batch, c.begin + n, c.head);
    const float inverse = log_total == -kInfinity ? 0 : exp(splat(-log_total))[0];
    float* to = s.grad + n * s.mixed_row;
    Floats share{};  // of O_1
    for_vectors(width, [&](int64_t j, auto&& get, auto&& put) {
      const Floats dmean = grad_mean ? get(grad_mean + j) : Floats{};
      if (grad_mean) share += dmean * get(mean + j);
      store(to + j, dmean * inverse);
      if (!beta) return;
      Floats dsum{};
      if (grad_free) {
        const Floats b = get(beta + j), f = get(free_energy + j), df = get(grad_free + j);
        const Floats scaled = select(df == 0.0f, Floats{}, df / b);  // lanes past the tail have b = 0
        share += scaled;
        dsum = scaled * exp(-b * f) * inverse;
        if (with_dbeta && inverse != 0) put(s.dbeta + j, get(s.dbeta + j) - scaled * f);
      }
      store(to + part + j, dsum);
    });
    const float dlog =
        a.grad_log_normalizer.data ? *row<float>(a.grad_log_normalizer, c.batch, c.begin + n, c.head) : 0;
    s.grad_one[n] = inverse == 0 ? 0 : (dlog - sum(share)) * inverse;
  }
  pack_panels(s.grad_panels, kChunk, s.grad, s.mixed_row, c.count, mixed_width(a));
}

template <typename Scalar>
inline void write_rows(const Arguments& a, const Scratch& s, const Chunk& c, void* to, bool keys) {
  for (int64_t n = 0; n < c.count; ++n) {
    const bool zero = keys && !c.real(a, n);
    for_vectors(a.key_width, [&](int64_t k, auto&&, auto&& put) {
      put(static_cast<Scalar*>(to) + c.place(a, n) * a.key_width + k,
          zero ? Floats{} : load(s.result + n * s.key_columns + k));
    });
  }
}

// dv and dbeta from dX.
template <typename Scalar>
inline void write_grad_value(const Backward& a, const Scratch& s, const Chunk& c) {
  const int64_t part = part_width(a);
  const float* beta = a.beta ? a.beta + c.head * a.value_width : nullptr;
  for (int64_t n = 0; n < c.count; ++n) {
    const float *dmixed = s.result + n * s.mixed_columns, *mixed = s.mixed + n * s.mixed_row;
    Scalar* to = static_cast<Scalar*>(a.grad_value) + c.place(a, n) * a.value_width;
    const bool real = c.real(a, n);
    for_vectors(a.value_width, [&](int64_t j, auto&& get, auto&& put) {
      Floats dv = load(dmixed + j);
      if (beta) {
        const Floats de = load(mixed + part + j) * load(dmixed + part + j);
        dv += get(beta + j) * de;
        if (real) put(s.dbeta + j, get(s.dbeta + j) + load(mixed + j) * de);
      }
      put(to + j, real ? dv : Floats{});
    });
  }
}

// What flows over the border before each token: inside the chunk, from before it to its queries, from its keys to
// after it, and from before to after.
template <typename Scalar>
inline void write_grad_log_decay(const Backward& a, const Chunk& c, const double* crossing, const double* to_queries,
                                 const double* from_keys, double through) {
  double later[kChunk], queries = 0, keys = 0;
  for (int64_t t = c.count - 1; t >= 0; --t) later[t] = queries += to_queries[t];
  for (int64_t t = 0; t < c.count; ++t) {
    const double total = c.real(a, t) ? crossing[t] + later[t] + keys + through : 0;
    store_first(static_cast<Scalar*>(a.grad_log_decay) + c.place(a, t), splat(static_cast<float>(total)), 1);
    keys += from_keys[t];
  }
}

}  // namespace
}  // namespace fem::linear_kernels
