// The change c = hidden weight of a block of tokens and a group of heads is a product in scratch that stays in L2; it
// is applied there. Backward forms it again, then its gradient takes its place for the two products that lead to hidden
// and weight.
#include "cpu/pack.h"
#include "cpu/tile.h"
#include "ops/modulate/cpu/angles.h"
#include "ops/modulate/cpu/kernels.h"

namespace fem::modulate_kernels {
namespace {

using namespace fem::cpu;

constexpr int64_t kGroupColumns = 256;

// Whole heads that are worked on together.
int64_t heads_in_group(const Modulate& a) { return a.width >= kGroupColumns ? 1 : kGroupColumns / a.width; }
int64_t group_columns(const Modulate& a) {
  const int64_t heads = heads_in_group(a);
  return (heads < a.heads ? heads : a.heads) * a.width;
}
int64_t groups_of(const Modulate& a) { return (a.heads + heads_in_group(a) - 1) / heads_in_group(a); }

struct Group {
  int64_t first_head, past_head, first_column, columns;
  int64_t panels, transposed;  // where its part of the packed weight begins
};
Group group_at(const Modulate& a, int64_t index) {
  const int64_t first = index * heads_in_group(a);
  const int64_t past = first + heads_in_group(a) < a.heads ? first + heads_in_group(a) : a.heads;
  return {first,
          past,
          first * a.width,
          (past - first) * a.width,
          index * padded(group_columns(a)) * a.hidden_width,
          index * padded(a.hidden_width) * group_columns(a)};
}

struct Block {
  int64_t first, rows;
};
Block block_at(const Modulate& a, int64_t index) {
  const int64_t first = index * kBlockRows;
  return {first, a.rows - first < kBlockRows ? a.rows - first : kBlockRows};
}

struct Scratch {
  double* walk;
  float *cosine, *sine;  // [rows, K]
  float *change, *hidden, *hidden_panels, *grad_hidden;
  int64_t change_row;

  Scratch(const Modulate& a, float* memory)
      : walk(reinterpret_cast<double*>(memory)), change_row(padded(group_columns(a))) {
    cosine = memory + walk_floats(a);
    sine = cosine + table_floats(a);
    change = sine + table_floats(a);
    hidden = change + kBlockRows * change_row;
    hidden_panels = hidden + kBlockRows * a.hidden_width;
    grad_hidden = hidden_panels + kBlockRows * padded(a.hidden_width);
  }
  static int64_t floats(const Modulate& a) {
    return walk_floats(a) + 2 * table_floats(a) +
           kBlockRows * (padded(group_columns(a)) + a.hidden_width + 2 * padded(a.hidden_width)) + kPanel;
  }

 private:
  static int64_t walk_floats(const Modulate& a) { return a.angles.frequency ? 2 * Walk::doubles(a.width) : 0; }
  static int64_t table_floats(const Modulate& a) { return a.angles.frequency ? kBlockRows * a.width : 0; }
};

// The rows of cosine and sine of a block's tokens.
void rotate_block(const Modulate& a, const Block& block, const Scratch& s) {
  if (!a.angles.frequency) return;
  Walk walk(a.angles, a.width, s.walk);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t row = block.first + r;
    const int64_t position = a.angles.position[row / a.tokens * a.angles.batch + row % a.tokens];
    walk.write(position, s.cosine + r * a.width, s.sine + r * a.width);
  }
}

// change <- hidden weight for a few tokens, from the weight as it is: every row of it is read once.
template <typename Scalar>
void form_few_changes(const Modulate& a, const Block& block, const Group& group, const Scratch& s) {
  for (int64_t r = 0; r < block.rows; ++r) std::memset(s.change + r * s.change_row, 0, sizeof(float) * group.columns);
  for (int64_t c = 0; c < a.hidden_width; ++c) {
    const Scalar* weight = static_cast<const Scalar*>(a.weight) + c * a.weight_row + group.first_column;
    for (int64_t r = 0; r < block.rows; ++r) {
      float* change = s.change + r * s.change_row;
      const float hidden = s.hidden[r * a.hidden_width + c];
      for_vectors(group.columns, [&](int64_t n, auto&& get, auto&& put) {
        put(change + n, get(change + n) + hidden * get(weight + n));
      });
    }
  }
}

// change <- hidden weight
template <typename Scalar>
void form_change(const Modulate& a, Packed packed, const Block& block, const Group& group, const Scratch& s) {
  if (!packed.panels) return form_few_changes<Scalar>(a, block, group, s);
  const Range whole{0, a.hidden_width};
  for (int64_t p = 0; p < panels_of(group.columns); ++p)
    multiply_panel<false>(0, block.rows, {s.hidden, a.hidden_width, 1},
                          packed.panels + group.panels + p * a.hidden_width * kPanel, s.change + p * kPanel,
                          s.change_row, [&](int64_t, int64_t) { return whole; });
}

// Lanes (0, 1), (2, 3), ... exchanged; vectors start at even elements, so pairs are never cut.
inline Floats partners(Floats x) {
  Ints other{};
  for (int lane = 0; lane < kLanes; ++lane) other[lane] = lane ^ 1;
  return __builtin_shuffle(x, other);
}

// One head of one token, and the rows that go with it.
template <typename Scalar>
struct Place {
  int64_t batch, token, head, row;
  const float *cosine, *sine, *change, *limit;

  Place(const Modulate& a, const Scratch& s, const Block& block, int64_t index, int64_t head, const float* change)
      : batch((block.first + index) / a.tokens),
        token((block.first + index) % a.tokens),
        head(head),
        row(block.first + index),
        cosine(a.angles.frequency ? s.cosine + index * a.width : nullptr),
        sine(s.sine + index * a.width),
        change(change),
        limit(a.limit ? a.limit + head * a.width : nullptr) {}
  const Scalar* in(const Rows& tensor) const { return cpu::row<Scalar>(tensor, batch, token, head); }
  Scalar* out(void* data, const Modulate& a) const {
    return static_cast<Scalar*>(data) + (row * a.heads + head) * a.width;
  }
};

template <typename Scalar>
void finish_head(const Modulate& a, const Place<Scalar>& p) {
  const Scalar* in = p.in(a.x);
  Scalar* y = p.out(a.y, a);
  for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
    Floats u = get(in + c);
    if (p.change) u += a.added ? get(p.change + c) : u * get(p.change + c);
    if (p.limit) {  // comparisons that leave NaN alone
      const Floats limit = get(p.limit + c);
      u = select(u > limit, limit, select(u < -limit, -limit, u));
    } else if (p.cosine) {
      u = u * get(p.cosine + c) + partners(u) * get(p.sine + c);
      if (a.positive) u = select(u < 0.0f, Floats{}, u) + a.floor;
    }
    put(y + c, u);
  });
}

// Writes dx and, where there is a change, puts its gradient in its place.
template <typename Scalar>
void finish_head_backward(const ModulateBackward& a, const Place<Scalar>& p, float* dchange, float* dlimit) {
  const Scalar *in = p.in(a.x), *grad = p.in(a.grad);
  Scalar* dx = p.out(a.grad_x, a);
  for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
    const Floats x = get(in + c), change = dchange ? get(dchange + c) : Floats{},
                 u = x + (a.added ? change : x * change);
    Floats d = get(grad + c);
    if (p.limit) {
      const Floats limit = get(p.limit + c), above = select(u > limit, d, Floats{}),
                   below = select(u < -limit, d, Floats{});
      put(dlimit + p.head * a.width + c, get(dlimit + p.head * a.width + c) + above - below);
      d = select(abs(u) > limit, Floats{}, d);
    } else if (p.cosine) {
      const Floats cosine = get(p.cosine + c), sine = get(p.sine + c);
      if (a.positive) d = select(u * cosine + partners(u) * sine > 0.0f, d, Floats{});
      d = d * cosine + partners(d * sine);
    }
    put(dx + c, a.added ? d : d + d * change);
    if (dchange) put(dchange + c, a.added ? d : d * x);
  });
}

template <typename Scalar>
void forward_blocks(const Modulate& a, Packed packed, int64_t begin, int64_t end, float* memory) {
  const Scratch s(a, memory);
  for (int64_t index = begin; index < end; ++index) {
    const Block block = block_at(a, index);
    if (a.hidden)
      pack_rows(s.hidden, static_cast<const Scalar*>(a.hidden) + block.first * a.hidden_width, a.hidden_width,
                block.rows, a.hidden_width);
    rotate_block(a, block, s);
    for (int64_t g = 0; g < groups_of(a); ++g) {
      const Group group = group_at(a, g);
      if (a.hidden) form_change<Scalar>(a, packed, block, group, s);
      for (int64_t r = 0; r < block.rows; ++r)
        for (int64_t head = group.first_head; head < group.past_head; ++head) {
          const float* change = a.hidden ? s.change + r * s.change_row + (head - group.first_head) * a.width : nullptr;
          finish_head(a, Place<Scalar>(a, s, block, r, head, change));
        }
    }
  }
}

template <typename Scalar>
void backward_blocks(const ModulateBackward& a, Packed packed, Sums sums, int64_t begin, int64_t end, float* memory) {
  const Scratch s(a, memory);
  const int64_t hidden_row = padded(a.hidden_width);
  for (int64_t index = begin; index < end; ++index) {
    const Block block = block_at(a, index);
    if (a.hidden) {
      const auto* hidden = static_cast<const Scalar*>(a.hidden) + block.first * a.hidden_width;
      pack_rows(s.hidden, hidden, a.hidden_width, block.rows, a.hidden_width);
      pack_panels(s.hidden_panels, block.rows, hidden, a.hidden_width, block.rows, a.hidden_width);
      std::memset(s.grad_hidden, 0, sizeof(float) * block.rows * hidden_row);
    }
    rotate_block(a, block, s);
    for (int64_t g = 0; g < groups_of(a); ++g) {
      const Group group = group_at(a, g);
      if (a.hidden) form_change<Scalar>(a, packed, block, group, s);
      for (int64_t r = 0; r < block.rows; ++r)
        for (int64_t head = group.first_head; head < group.past_head; ++head) {
          float* change = a.hidden ? s.change + r * s.change_row + (head - group.first_head) * a.width : nullptr;
          finish_head_backward(a, Place<Scalar>(a, s, block, r, head, change), change, sums.limit);
        }
      if (!a.hidden) continue;
      const auto all = [](int64_t depth) { return [depth](int64_t, int64_t) { return Range{0, depth}; }; };
      for (int64_t p = 0; p < panels_of(a.hidden_width); ++p) {
        multiply_panel<true>(0, block.rows, {s.change, s.change_row, 1},
                             packed.transposed + group.transposed + p * group.columns * kPanel,
                             s.grad_hidden + p * kPanel, hidden_row, all(group.columns));
        multiply_panel<true>(0, group.columns, {s.change, 1, s.change_row}, s.hidden_panels + p * block.rows * kPanel,
                             sums.weight + group.first_column * hidden_row + p * kPanel, hidden_row, all(block.rows));
      }
    }
    if (!a.hidden) continue;
    for (int64_t r = 0; r < block.rows; ++r) {
      auto* to = static_cast<Scalar*>(a.grad_hidden) + (block.first + r) * a.hidden_width;
      for_vectors(a.hidden_width,
                  [&](int64_t c, auto&& get, auto&& put) { put(to + c, get(s.grad_hidden + r * hidden_row + c)); });
    }
  }
}

template <typename Scalar>
void pack_groups(const Modulate& a, float* panels, float* transposed) {
  for (int64_t g = 0; g < groups_of(a); ++g) {
    const Group group = group_at(a, g);
    const auto* weight = static_cast<const Scalar*>(a.weight) + group.first_column;
    pack_panels(panels + group.panels, a.hidden_width, weight, a.weight_row, a.hidden_width, group.columns);
    if (transposed)
      pack_panels_transposed(transposed + group.transposed, weight, a.weight_row, a.hidden_width, group.columns);
  }
}

}  // namespace

namespace FEM_ISA {

Sizes sizes(const Modulate& a) {
  return {groups_of(a) * padded(group_columns(a)) * a.hidden_width,
          groups_of(a) * padded(a.hidden_width) * group_columns(a), Scratch::floats(a), padded(a.hidden_width)};
}

void angles_at(const Angles& angles, int64_t width, int64_t position, double* cosine, double* sine) {
  form_angles(angles, width, position, cosine, sine);
}

void pack_weight(const Modulate& a, float* panels, float* transposed) {
  with_scalar(a, [&](auto scalar) { pack_groups<decltype(scalar)>(a, panels, transposed); });
}

void forward(const Modulate& a, Packed packed, int64_t begin, int64_t end, float* scratch) {
  with_scalar(a, [&](auto scalar) { forward_blocks<decltype(scalar)>(a, packed, begin, end, scratch); });
}

void backward(const ModulateBackward& a, Packed packed, Sums sums, int64_t begin, int64_t end, float* scratch) {
  with_scalar(a, [&](auto scalar) { backward_blocks<decltype(scalar)>(a, packed, sums, begin, end, scratch); });
}

}  // namespace FEM_ISA
}  // namespace fem::modulate_kernels
