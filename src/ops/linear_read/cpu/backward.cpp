// Backward kernel. With rows dO = [dmean / O_1, dF / (beta O_e)], dO_1 and the gradient dS of the state at the chunk's
// end (README.md has the derivation), chunks from the last to the first:
//   A  = Q K^T exp(G_t - G_i)                    dA = (dO X^T + dO_1) exp(G_t - G_i)      on and below the diagonal
//   dQ = exp(G_t) (dO S^T + dO_1 s^T) + dA K     dK = exp(G_end - G_i) (X dS^T + ds^T) + dA^T Q
//   dX = exp(G_end - G_i) K dS + A^T dO          dS <- exp(G_end) dS + (Q exp(G_t))^T dO
// S is needed from the left only, so that the states of a group of chunks, recomputed from its checkpoint, are kept as
// S^T; dS is needed from both sides and transposed once a chunk.
#include "ops/linear_read/cpu/gradient_rows.h"

namespace fem::linear_kernels {
namespace {

constexpr auto whole(int64_t depth) {
  return [depth](int64_t, int64_t) { return Range{0, depth}; };
}

// What only the backward pass proper reads of a chunk: all but keys and values.
__attribute__((always_inline)) inline void prefetch_reads(const Backward& a, const Chunk& c, int64_t share,
                                                          int64_t shares) {
  prefetch(a.query, scalar_bytes(a), a.key_width, c, share, shares);
  for (const Rows* rows : {&a.mean, &a.grad_mean}) prefetch(*rows, scalar_bytes(a), a.value_width, c, share, shares);
  for (const Rows* rows : {&a.free_energy, &a.grad_free_energy})
    prefetch(*rows, sizeof(float), a.value_width, c, share, shares);
}

// The state after a chunk from that before it: state(index) -> state(index + 1).
template <typename Scalar>
void next_state(const Backward& a, const Scratch& s, const Chunk& c, const Chunk& next, bool next_is_last,
                int64_t index) {
  gather_keys<Scalar>(s.key, s.key_row, a, c);
  mix_rows<Scalar>(a, s, c);
  float *before = s.state(index), *after = s.state(index + 1);
  if (a.log_decay.data) {
    Decays decays;
    decays.set<Scalar>(a, c);
    scale_rows(s.key, s.key_row, decays.until, c.count, a.key_width);
    decay(after, before, s.state_floats, decays.whole);
  } else {
    std::memcpy(after, before, s.state_floats * sizeof(float));
  }
  pack_panels(s.key_panels, kChunk, s.key, s.key_row, c.count, a.key_width);
  for (int64_t p = 0; p < s.key_columns; p += kPanel) {
    const int64_t share = p / kPanel, shares = s.key_columns / kPanel;
    prefetch(a.key, scalar_bytes(a), a.key_width, next, share, shares);
    prefetch(a.value, scalar_bytes(a), a.value_width, next, share, shares);
    if (next_is_last) prefetch_reads(a, next, share, shares);
    multiply_panel<true>(0, mixed_width(a), {s.mixed, 1, s.mixed_row}, s.key_panels + p * kChunk,
                         after + p * mixed_width(a), kPanel, whole(c.count));
  }
  for_vectors(a.key_width, [&](int64_t k, auto&& get, auto&& put) {
    Floats total{};
    for (int64_t n = 0; n < c.count; ++n) total += load(s.key + n * s.key_row + k);
    put(s.one(a, index + 1) + k, get(s.one(a, index + 1) + k) + total);
  });
}

// dS and ds before the chunk from those after it; queries already scaled.
void previous_gradient(const Arguments& a, const Scratch& s, const Chunk& c, const State& to, const Decays* decays) {
  if (decays) decay(to.mixed, to.mixed, State::floats(a), decays->whole);
  for (int64_t column = 0; column < s.mixed_columns; column += kPanel)
    multiply_panel<true>(0, a.key_width, {s.query, 1, s.key_row}, s.grad_panels + column * kChunk,
                         to.mixed + column * a.key_width, kPanel, whole(c.count));
  for_vectors(a.key_width, [&](int64_t k, auto&& get, auto&& put) {
    Floats total{};
    for (int64_t n = 0; n < c.count; ++n) total += s.grad_one[n] * load(s.query + n * s.key_row + k);
    put(to.one + k, get(to.one + k) + total);
  });
}

// Q K^T -> A and dO X^T -> dA. With decays, crossing[t] is what flows over the border before t: the sum of A_ui dA_ui
// over i < t <= u, without differences, so that it is exact where little flows.
void weigh(const Arguments& a, const Scratch& s, const Chunk& c, const Decays* decays, double* crossing) {
  const Ints lanes = lane_index();
  Floats flows[kWeightRow / kLanes] = {};
  for (int64_t t = c.count - 1; t >= 0; --t) {
    float *weights = s.weights + t * kWeightRow, *dweights = s.dweights + t * kWeightRow;
    Floats over{};
    for (int64_t i = 0; i < t + 1 + kTileRows; i += kLanes) {
      const Ints distance = static_cast<int32_t>(t - i) - lanes;
      const Ints visible = a.strict ? distance > 0 : distance >= 0;
      Floats weight = load(weights + i), dweight = load(dweights + i) + s.grad_one[t];
      if (decays) {
        const Floats between = decays->until_query(t, i);
        weight *= between;
        flows[i / kLanes] += select(visible, weight * dweight, Floats{});
        over += select(distance > 0, flows[i / kLanes], Floats{});
        dweight *= between;
      }
      store(weights + i, select(visible, weight, Floats{}));
      store(dweights + i, select(visible, dweight, Floats{}));
    }
    if (decays) crossing[t] = sum(over);
  }
}

// result <- factors_n (result + left_n right^T) row by row: the column of ones, and the decay. flows[n], if wanted, is
// its product with the rows.
void finish_outer(const Arguments& a, const Scratch& s, const Chunk& c, const float* left, const float* right,
                  const float* factors, const float* rows, double* flows) {
  for (int64_t n = 0; n < c.count; ++n) {
    const float by = left ? left[n] : 1, factor = factors ? factors[n] : 1;
    float* to = s.result + n * s.key_columns;
    Floats flow{};
    for_vectors(a.key_width, [&](int64_t k, auto&& get, auto&&) {
      const Floats x = factor * (load(to + k) + by * get(right + k));
      store(to + k, x);
      flow += x * load(rows + n * s.key_row + k);
    });
    if (flows) flows[n] = sum(flow);
  }
}

float dot(const float* x, const float* y, int64_t count) {
  Floats even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even += load(x + i) * load(y + i);
    odd += load(x + i + kLanes) * load(y + i + kLanes);
  }
  float rest = 0;
  for (; i < count; ++i) rest += x[i] * y[i];
  return sum(even + odd) + rest;
}

// What is known of the surroundings of a chunk: whether anything is in the state before and in the gradient of the one
// after, whether the gradient of the one before is wanted, and the chunk that is next.
struct Around {
  bool past, future, wanted;
  Chunk next;
};

template <typename Scalar>
void chunk_backward(const Backward& a, const Scratch& s, const Chunk& c, int64_t index, const State& dstate,
                    Around around, double* grad_beta) {
  const auto& [past, future, wanted, next] = around;
  const int64_t mix = mixed_width(a);
  Decays memory;
  const Decays* decays = a.log_decay.data ? &memory : nullptr;
  if (decays) memory.set<Scalar>(a, c);
  std::memset(s.dbeta, 0, part_width(a) * sizeof(float));
  gather_queries<Scalar>(s.query, s.key_row, a, c);
  gather_keys<Scalar>(s.key, s.key_row, a, c);
  mix_rows<Scalar>(a, s, c);
  gather_gradients<Scalar>(a, s, c, true);
  pack_panels(s.query_panels, kChunk, s.query, s.key_row, c.count, a.key_width);
  pack_panels(s.key_panels, kChunk, s.key, s.key_row, c.count, a.key_width);
  pack_panels_transposed(s.key_t, s.key, s.key_row, c.count, a.key_width);
  pack_panels_transposed(s.mixed_t, s.mixed, s.mixed_row, c.count, mix);
  for (int64_t column = 0; future && column < mix; column += kPanel)
    transpose_to_panels(s.dstate_t + column * kPanel, mix, dstate.mixed + column * a.key_width, kPanel, a.key_width,
                        lesser(kPanel, mix - column));

  for (int64_t m = 0; m < c.count; m += kPanel) {
    multiply_panel<false>(m, c.count, {s.query, s.key_row, 1}, s.key_t + m * a.key_width, s.weights + m, kWeightRow,
                          whole(a.key_width));
    multiply_panel<false>(m, c.count, {s.grad, s.mixed_row, 1}, s.mixed_t + m * mix, s.dweights + m, kWeightRow,
                          whole(mix));
  }
  double crossing[kChunk], to_queries[kChunk] = {}, from_keys[kChunk] = {};
  weigh(a, s, c, decays, crossing);
  const auto earlier = [&](int64_t, int64_t last) { return Range{0, last + 1}; };
  const auto later = [&](int64_t first, int64_t) { return Range{first, c.count}; };
  const auto clear = [&](int64_t columns) { std::memset(s.result, 0, c.count * columns * sizeof(float)); };

  // dQ
  if (past) {
    for (int64_t p = 0; p < s.key_columns; p += kPanel)
      multiply_panel<false>(0, c.count, {s.grad, s.mixed_row, 1}, s.state(index) + p * mix, s.result + p, s.key_columns,
                            whole(mix));
    finish_outer(a, s, c, s.grad_one, s.one(a, index), decays ? memory.since : nullptr, s.query,
                 decays ? to_queries : nullptr);
  } else {
    clear(s.key_columns);
  }
  for (int64_t p = 0; p < s.key_columns; p += kPanel) {
    prefetch_reads(a, next, p / kPanel, s.key_columns / kPanel);
    multiply_panel<true>(0, c.count, {s.dweights, kWeightRow, 1}, s.key_panels + p * kChunk, s.result + p,
                         s.key_columns, earlier);
  }
  write_rows<Scalar>(a, s, c, a.grad_query, false);

  // dK
  if (future) {
    for (int64_t p = 0; p < s.key_columns; p += kPanel)
      multiply_panel<false>(0, c.count, {s.mixed, s.mixed_row, 1}, s.dstate_t + p * mix, s.result + p, s.key_columns,
                            whole(mix));
    finish_outer(a, s, c, nullptr, dstate.one, decays ? memory.until : nullptr, s.key, decays ? from_keys : nullptr);
  } else {
    clear(s.key_columns);
  }
  for (int64_t p = 0; p < s.key_columns; p += kPanel)
    multiply_panel<true>(0, c.count, {s.dweights, 1, kWeightRow}, s.query_panels + p * kChunk, s.result + p,
                         s.key_columns, later);
  write_rows<Scalar>(a, s, c, a.grad_key, true);

  if (decays) {
    double through = 0;
    if (past && future)
      through = exp(splat(memory.whole))[0] *
                (dot(s.state(index), s.dstate_t, mix * s.key_columns) + dot(s.one(a, index), dstate.one, a.key_width));
    write_grad_log_decay<Scalar>(a, c, crossing, to_queries, from_keys, through);
    scale_rows(s.query, s.key_row, memory.since, c.count, a.key_width);
    scale_rows(s.key, s.key_row, memory.until, c.count, a.key_width);
  }

  // dX
  if (!future) clear(s.mixed_columns);
  for (int64_t column = 0; column < s.mixed_columns; column += kPanel) {
    if (future)
      multiply_panel<false>(0, c.count, {s.key, s.key_row, 1}, dstate.mixed + column * a.key_width, s.result + column,
                            s.mixed_columns, whole(a.key_width));
    multiply_panel<true>(0, c.count, {s.weights, 1, kWeightRow}, s.grad_panels + column * kChunk, s.result + column,
                         s.mixed_columns, later);
  }
  write_grad_value<Scalar>(a, s, c);
  for (int64_t j = 0; a.beta && j < a.value_width; ++j) grad_beta[j] += s.dbeta[j];
  if (wanted) previous_gradient(a, s, c, dstate, decays);
}

// Tokens [begin, end) of a segment, at most a.group_tokens, from the last chunk to the first.
template <typename Scalar>
void group_backward(const Backward& a, const Scratch& s, const Segment& segment, int64_t head, int64_t begin,
                    int64_t end, const float* start, const State& dstate, bool after, bool wanted, double* grad_beta) {
  const auto chunk = [&](int64_t from, int64_t to) { return Chunk{segment.batch, head, from, to - from}; };
  load_transposed(a, s, start);
  int64_t index = 0;
  for (int64_t t = begin, next; (next = chunk_end(t, end)) < end; t = next)
    next_state<Scalar>(a, s, chunk(t, next), chunk(next, chunk_end(next, end)), chunk_end(next, end) == end, index++);
  for (int64_t t = end, from; t > begin; t = from, --index) {
    from = chunk_begin(t, begin);
    const Around around{start || index > 0, after || t < segment.end, wanted || from > segment.begin,
                        from > begin ? chunk(chunk_begin(from, begin), from) : chunk(from, from)};
    chunk_backward<Scalar>(a, s, chunk(from, t), index, dstate, around, grad_beta + head * a.value_width);
  }
}

}  // namespace

namespace FEM_ISA {

int64_t backward_scratch(const Arguments& a) { return Scratch(a, nullptr).floats; }

void backward(const Backward& a, const Segment& segment, Groups heads, const float* before, const float* grad_after,
              float* grad_before, double* grad_beta, float* scratch) {
  const Scratch s(a, scratch);
  const int64_t floats = State::floats(a);
  for (int64_t first = heads.begin; first < heads.end; first += heads_at_once(a)) {
    const int64_t past_last = lesser(heads.end, first + heads_at_once(a));
    const auto dstate_of = [&](int64_t head) { return State(a, s.dstates + (head - first) * floats); };
    for (int64_t head = first; head < past_last; ++head) load_state(a, dstate_of(head), of_head(a, grad_after, head));
    for (int64_t end = segment.end, begin; end > segment.begin; end = begin) {
      begin = segment.begin + (end - 1 - segment.begin) / a.group_tokens * a.group_tokens;
      for (int64_t head = first; head < past_last; ++head) {
        const float* start = begin > segment.begin ? checkpoint(a, segment, begin, head) : of_head(a, before, head);
        with_scalar(a, [&](auto scalar) {
          group_backward<decltype(scalar)>(a, s, segment, head, begin, end, start, dstate_of(head), grad_after,
                                           grad_before, grad_beta);
        });
      }
    }
    for (int64_t head = first; grad_before && head < past_last; ++head)
      store_state(a, of_head(a, grad_before, head), dstate_of(head));
  }
}

void retreat(const Backward& a, const Segment& segment, Groups heads, const float* grad_after, float* grad_before,
             float* scratch) {
  const Scratch s(a, scratch);
  const State dstate(a, s.dstates);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    load_state(a, dstate, of_head(a, grad_after, head));
    for (int64_t end = segment.end, begin; end > segment.begin; end = begin) {
      begin = chunk_begin(end, segment.begin);
      const Chunk c{segment.batch, head, begin, end - begin};
      with_scalar(a, [&](auto scalar) {
        using Scalar = decltype(scalar);
        Decays memory;
        const Decays* decays = a.log_decay.data ? &memory : nullptr;
        gather_queries<Scalar>(s.query, s.key_row, a, c);
        gather_gradients<Scalar>(a, s, c, false);
        if (decays) {
          memory.set<Scalar>(a, c);
          scale_rows(s.query, s.key_row, memory.since, c.count, a.key_width);
        }
        previous_gradient(a, s, c, dstate, decays);
      });
    }
    store_state(a, of_head(a, grad_before, head), dstate);
  }
}

}  // namespace FEM_ISA
}  // namespace fem::linear_kernels
