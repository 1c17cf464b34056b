// Forward kernel. A chunk of tokens at a time, with X = [v, exp(beta v)] and G the log-decay from the chunk's begin:
//   A  = Q K^T exp(G_t - G_i)         on and below the diagonal (kept as A^T: sums over keys run along vectors)
//   O  = (Q exp(G_t)) S + A X         and for the column of ones  exp(G_t) q.s + sum_i A
//   S <- exp(G_end) S + (K exp(G_end - G_i))^T X
// and at the end mean = O_v / O_1, F = log(O_e / O_1) / beta. S stays in panels: it is the right factor of Q S and the
// result of K^T X alike.
#include "ops/linear_read/cpu/common.h"

namespace fem::linear_kernels {
namespace {

struct Scratch {
  int64_t key_row, columns;  // row lengths of query and key, and of out
  float* query_t;            // Q^T panels           [K x kChunk]
  float* query;              // Q exp(G_t)           [kChunk x key_row]
  float* key;                // K, later scaled      [kChunk x key_row]
  float* mixed;              // X panels             [kChunk x columns]
  float* weights;            // A^T                  [kChunk x kWeightRow]
  float* out;                // O                    [kChunk x columns]
  float* total;              // O_1                  [kChunk]
  float* increment;          // K^T X                [K x kPanel]
  float* states;             // S, s of some heads ...
  float* rests;              // ... and what was lost in rounding them
  int64_t floats = 0;

  Scratch(const Arguments& a, float* at) : key_row(odd_lines(a.key_width)), columns(padded(mixed_width(a))) {
    const auto take = [&](int64_t count) { return next_of(at, floats, count); };
    query_t = take(kChunk * a.key_width);
    query = take(kChunk * key_row);
    key = take(kChunk * key_row);
    mixed = take(kChunk * columns);
    weights = take(kChunk * kWeightRow);
    out = take(kChunk * columns);
    total = take(kChunk);
    increment = take(a.key_width * kPanel);
    states = take(heads_at_once(a) * State::floats(a));
    rests = take(heads_at_once(a) * State::floats(a));
  }
};

template <typename Scalar>
float pack_mixed(const Arguments& a, const Scratch& s, const Chunk& c) {
  return mix<Scalar>(a, c, [&](int64_t n, int64_t column, Floats x) {
    store(s.mixed + column / kPanel * kChunk * kPanel + n * kPanel + column % kPanel, x);
  });
}

// K and Q of a chunk -> A^T, and O_1 in total.
void weigh(const Arguments& a, const Scratch& s, const Chunk& c, const State& state, const Decays* decays) {
  const int64_t width = a.key_width;
  const Ints lanes = lane_index();
  for (int64_t m = 0; m < c.count; m += kPanel) {
    const float* query = s.query_t + m * width;
    multiply_panel<false>(0, lesser(c.count, m + kPanel), {s.key, s.key_row, 1}, query, s.weights + m, kWeightRow,
                          [&](int64_t, int64_t) { return Range{0, width}; });
    for (int64_t t = m; t < m + kPanel; t += kLanes) {
      Floats even{}, odd{};  // q.s
      for (int64_t k = 0; k + 1 < width; k += 2) {
        even += state.one[k] * load(query + k * kPanel + t - m);
        odd += state.one[k + 1] * load(query + (k + 1) * kPanel + t - m);
      }
      if (width % 2) even += state.one[width - 1] * load(query + (width - 1) * kPanel + t - m);
      Floats total = (even + odd) * (decays ? load(decays->since + t) : splat(1.0f));

      // Keys that all queries of the vector see, then those that some do; below these A^T is read up to a tile's
      // height.
      const int64_t all = lesser(c.count, a.strict ? t : t + 1), some = lesser(c.count, m + kPanel + kTileRows);
      for (int64_t i = 0; i < all; ++i) {
        Floats weight = load(s.weights + i * kWeightRow + t);
        if (decays) store(s.weights + i * kWeightRow + t, weight *= decays->since_key(t, i));
        total += weight;
      }
      for (int64_t i = all; i < some; ++i) {
        Floats weight = load(s.weights + i * kWeightRow + t);
        if (decays) weight *= decays->since_key(t, i);
        const Ints distance = lanes + static_cast<int32_t>(t - i);
        weight = select(a.strict ? distance > 0 : distance >= 0, weight, Floats{});
        store(s.weights + i * kWeightRow + t, weight);
        total += weight;
      }
      store(s.total + t, total);
    }
  }
}

// state <- e^log_decay state + increment. The rounding errors of the sum go to rest and are added the next time:
// otherwise, with equal tokens, those of a hundred thousand tokens would all point the same way.
void accumulate(float* state, float* rest, const float* increment, int64_t count, float log_decay) {
  const Floats x = splat(log_decay), minus_one = exp_minus_one(x), factor = exp(x);
  const bool near = log_decay > -kLn2 / 2;
  for_vectors(count, [&](int64_t i, auto&& get, auto&& put) {
    const Floats before = get(state + i), more = get(increment + i) + get(rest + i);
    const Floats kept = near ? before : factor * before;
    const Floats change = near ? minus_one * before + more : more;
    const Floats after = kept + change;
    put(state + i, after);
    put(rest + i, change - (after - kept));
  });
}

// A state and what was lost in rounding it.
struct Sums {
  State state, rest;
};

// K and X of a chunk, keys already scaled, into the panel of S that begins with column.
void add_to_panel(const Arguments& a, const Scratch& s, const Chunk& c, const Sums& sums, int64_t column,
                  float log_decay) {
  multiply_panel<false>(0, a.key_width, {s.key, 1, s.key_row}, s.mixed + column * kChunk, s.increment, kPanel,
                        [&](int64_t, int64_t) { return Range{0, c.count}; });
  const int64_t at = column * a.key_width;
  accumulate(sums.state.mixed + at, sums.rest.mixed + at, s.increment, a.key_width * kPanel, log_decay);
}

void add_to_one(const Arguments& a, const Scratch& s, const Chunk& c, const Sums& sums, float log_decay) {
  for_vectors(a.key_width, [&](int64_t k, auto&&, auto&& put) {
    Floats total{};
    for (int64_t n = 0; n < c.count; ++n) total += load(s.key + n * s.key_row + k);
    put(s.increment + k, total);
  });
  accumulate(sums.state.one, sums.rest.one, s.increment, a.key_width, log_decay);
}

template <typename Scalar>
float read_chunk(const Forward& a, const Scratch& s, const Chunk& c, const Chunk& next, const Sums& sums, bool past) {
  const State& state = sums.state;
  Decays memory;
  const Decays* decays = a.log_decay.data ? &memory : nullptr;
  if (decays) memory.set<Scalar>(a, c);
  gather_queries<Scalar>(s.query, s.key_row, a, c);
  gather_keys<Scalar>(s.key, s.key_row, a, c);
  pack_panels_transposed(s.query_t, s.query, s.key_row, c.count, a.key_width);
  const float largest = pack_mixed<Scalar>(a, s, c);

  weigh(a, s, c, state, decays);
  const float log_decay = decays ? memory.whole : 0;
  if (decays) {
    scale_rows(s.query, s.key_row, memory.since, c.count, a.key_width);
    scale_rows(s.key, s.key_row, memory.until, c.count, a.key_width);
  }
  for (int64_t column = 0; column < s.columns; column += kPanel) {
    for (const Rows* rows : {&a.query, &a.key})
      prefetch(*rows, scalar_bytes(a), a.key_width, next, column / kPanel, s.columns / kPanel);
    prefetch(a.value, scalar_bytes(a), a.value_width, next, column / kPanel, s.columns / kPanel);
    const auto seen = [&](int64_t, int64_t last) { return Range{0, last + 1}; };
    const Left weights{s.weights, 1, kWeightRow};
    if (past) {
      multiply_panel<false>(0, c.count, {s.query, s.key_row, 1}, state.mixed + column * a.key_width, s.out + column,
                            s.columns, [&](int64_t, int64_t) { return Range{0, a.key_width}; });
      multiply_panel<true>(0, c.count, weights, s.mixed + column * kChunk, s.out + column, s.columns, seen);
    } else {
      multiply_panel<false>(0, c.count, weights, s.mixed + column * kChunk, s.out + column, s.columns, seen);
    }
    add_to_panel(a, s, c, sums, column, log_decay);
  }
  add_to_one(a, s, c, sums, log_decay);
  for (int64_t n = 0; n < c.count; ++n) {
    const float* out = s.out + n * s.columns;
    write_read<Scalar>(a, c, n, out, out + part_width(a), s.total[n]);
  }
  return largest;
}

template <typename Scalar>
void add_chunk(const Forward& a, const Scratch& s, const Chunk& c, const Sums& sums) {
  Decays memory;
  const Decays* decays = a.log_decay.data ? &memory : nullptr;
  gather_keys<Scalar>(s.key, s.key_row, a, c);
  pack_mixed<Scalar>(a, s, c);
  if (decays) {
    memory.set<Scalar>(a, c);
    scale_rows(s.key, s.key_row, memory.until, c.count, a.key_width);
  }
  const float log_decay = decays ? memory.whole : 0;
  for (int64_t column = 0; column < s.columns; column += kPanel) add_to_panel(a, s, c, sums, column, log_decay);
  add_to_one(a, s, c, sums, log_decay);
}

}  // namespace

namespace FEM_ISA {

int64_t forward_scratch(const Arguments& a) { return Scratch(a, nullptr).floats; }

float forward(const Forward& a, const Segment& segment, Groups heads, const float* before, float* after,
              float* scratch) {
  const Scratch s(a, scratch);
  std::memset(s.mixed, 0, kChunk * s.columns * sizeof(float));  // columns that no value fills
  const int64_t floats = State::floats(a);
  float largest = 0;
  for (int64_t first = heads.begin; first < heads.end; first += heads_at_once(a)) {
    const int64_t past_last = lesser(heads.end, first + heads_at_once(a));
    const auto state_of = [&](int64_t head) { return State(a, s.states + (head - first) * floats); };
    std::memset(s.rests, 0, (past_last - first) * floats * sizeof(float));
    for (int64_t head = first; head < past_last; ++head) load_state(a, state_of(head), of_head(a, before, head));
    for (int64_t begin = segment.begin, end; begin < segment.end; begin = end) {
      end = chunk_end(begin, segment.end);
      const bool inside = begin > segment.begin;
      for (int64_t head = first; head < past_last; ++head) {
        const Sums sums{state_of(head), State(a, s.rests + (head - first) * floats)};
        if (inside && (begin - segment.begin) % a.group_tokens == 0)
          store_state(a, checkpoint(a, segment, begin, head), sums.state);
        const Chunk c{segment.batch, head, begin, end - begin};
        const Chunk next = head + 1 < past_last ? Chunk{segment.batch, head + 1, begin, end - begin}
                                                : Chunk{segment.batch, first, end, chunk_end(end, segment.end) - end};
        const float most = with_scalar(
            a, [&](auto scalar) { return read_chunk<decltype(scalar)>(a, s, c, next, sums, inside || before); });
        largest = most > largest ? most : largest;
      }
    }
    for (int64_t head = first; after && head < past_last; ++head)
      store_state(a, of_head(a, after, head), state_of(head));
  }
  return largest;
}

void advance(const Forward& a, const Segment& segment, Groups heads, const float* before, float* after,
             float* scratch) {
  const Scratch s(a, scratch);
  std::memset(s.mixed, 0, kChunk * s.columns * sizeof(float));
  const Sums sums{State(a, s.states), State(a, s.rests)};
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    std::memset(s.rests, 0, State::floats(a) * sizeof(float));
    load_state(a, sums.state, of_head(a, before, head));
    for (int64_t begin = segment.begin, end; begin < segment.end; begin = end) {
      end = chunk_end(begin, segment.end);
      const Chunk c{segment.batch, head, begin, end - begin};
      with_scalar(a, [&](auto scalar) { add_chunk<decltype(scalar)>(a, s, c, sums); });
    }
    store_state(a, of_head(a, after, head), sums.state);
  }
}

void join(const Arguments& a, const Segment& segment, Groups heads, const float* from, float* to) {
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    double total = 0;
    const Chunk all{segment.batch, head, segment.begin, segment.end - segment.begin};
    if (a.log_decay.data)
      with_scalar(a, [&](auto scalar) {
        for (int64_t n = 0; n < all.count; ++n) total += log_decay_of<decltype(scalar)>(a, all, n);
      });
    const Floats x = splat(static_cast<float>(total));
    for_vectors(a.key_width * row_state_width(a), [&](int64_t i, auto&& get, auto&& put) {
      float* at = of_head(a, to, head) + i;
      put(at, get(at) + decayed(get(of_head(a, from, head) + i), x));
    });
  }
}

}  // namespace FEM_ISA
}  // namespace fem::linear_kernels
