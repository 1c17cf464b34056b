// Forward kernel. For a block of queries beside all keys that they see:
//   S = Q K^T, P = softmax(S)     M = P U, G = M - rho Q     R = G U^T - M.G     O = P (1 + alpha R) V
#include "ops/newton_read/cpu/strip.h"

namespace fem::newton_kernels {
namespace {

struct Scratch {
  float* query;    // scaled           [kQueries x K]
  float* weights;  // S, then P        [kQueries x strip_row]
  float* tilts;    // R, then weights  [kQueries x strip_row]
  float* mixed;    // M, then O        [kQueries x padded, of the wider]
  float* g;        // G                [kQueries x space]
  float* mean_g;   // M.G              [kQueries]
  int64_t floats;

  Scratch(const Arguments& a, float* at) {
    Memory memory{at};
    const int64_t space = a.space_width();
    query = memory.take(kQueries * a.key_width);
    weights = memory.take(kQueries * strip_row(a));
    tilts = memory.take(kQueries * strip_row(a));
    mixed = memory.take(kQueries * padded(space > a.value_width ? space : a.value_width));
    g = memory.take(kQueries * space);
    mean_g = memory.take(kQueries);
    floats = memory.floats;
  }
};

// A row of scores becomes weights; returns the log-normaliser.
float softmax_row(const Block& block, float* row) {
  Floats highest = splat(-kInfinity);
  for_keys(block, [&](int64_t n) { highest = max(load(row + n), highest); });
  const float most = max(highest);
  if (most == -kInfinity) {
    for_keys(block, [&](int64_t n) { store(row + n, Floats{}); });
    return -kInfinity;
  }
  Floats totals{};
  for_keys(block, [&](int64_t n) {
    const Floats p = exp(load(row + n) - most);
    store(row + n, p);
    totals += p;
  });
  const float total = sum(totals), inverse = 1 / total;
  for_keys(block, [&](int64_t n) { store(row + n, load(row + n) * inverse); });
  return most + log(splat(total))[0];
}

template <typename Scalar>
void query_block(const Forward& a, const Scratch& s, int64_t head, int64_t index) {
  const Block block(a, head, index);
  const PackedHead packed(a, head);
  const int64_t space = a.space_width(), space_columns = padded(space), columns = padded(a.value_width);
  pack_rows(s.query, row<Scalar>(a.query, block.batch, block.begin, block.head), a.query.token, block.count,
            a.key_width, a.scale);

  products(block, s.weights, {s.query, a.key_width, 1}, a.key_width, packed.key_t);
  for (int64_t m = 0; m < block.count; ++m) {
    float* weights = s.weights + m * strip_row(a);
    hide(block, weights, m);
    a.log_normalizer[block.place(m)] = softmax_row(block, weights);
  }
  mix(block, s.mixed, s.weights, packed.space(a), space);
  gradient_rows(block, s.g, s.mean_g, s.mixed, space_columns, s.query);
  for (int64_t m = 0; m < block.count; ++m)
    std::memcpy(a.mean + block.place(m) * space, s.mixed + m * space_columns, space * sizeof(float));

  products(block, s.tilts, {s.g, space, 1}, space, packed.space_t(a));
  const float alpha = a.alpha[block.head];
  for (int64_t m = 0; m < block.count; ++m) {
    const float *p = s.weights + m * strip_row(a), mean_g = s.mean_g[m];
    float* w = s.tilts + m * strip_row(a);
    for_keys(block, [&](int64_t n) { store(w + n, load(p + n) * (1 + alpha * (load(w + n) - mean_g))); });
  }
  mix(block, s.mixed, s.tilts, packed.value, a.value_width);
  for (int64_t m = 0; m < block.count; ++m) {
    Scalar* read = static_cast<Scalar*>(a.read) + block.place(m) * a.value_width;
    for_vectors(a.value_width,
                [&](int64_t c, auto&& get, auto&& put) { put(read + c, get(s.mixed + m * columns + c)); });
  }
}

// Rows of keys or values of a head in float32, [keys x width]; masked ones are 0, whatever they hold.
template <typename Scalar>
void real_rows(const Arguments& a, float* to, const Rows& from, int64_t head, int64_t width) {
  for (int64_t n = 0; n < a.keys; ++n)
    if (a.key_mask && !a.key_mask[head / a.heads * a.keys + n])
      std::memset(to + n * width, 0, width * sizeof(float));
    else
      pack_rows(to + n * width, row<Scalar>(from, head / a.heads, n, head % a.heads), 0, 1, width);
}

}  // namespace

namespace FEM_ISA {

int64_t head_floats(const Arguments& a) { return PackedHead::floats(a); }

int64_t pack_floats(const Arguments& a) { return a.keys * (a.key_width > a.value_width ? a.key_width : a.value_width); }

void pack_heads(const Arguments& a, int64_t head, float* scratch) {
  const PackedHead to(a, head);
  with_scalar(a, [&](auto scalar) {
    real_rows<decltype(scalar)>(a, scratch, a.key, head, a.key_width);
    pack_panels_transposed(to.key_t, scratch, a.key_width, a.keys, a.key_width);
    pack_panels(to.key, a.keys, scratch, a.key_width, a.keys, a.key_width);
    real_rows<decltype(scalar)>(a, scratch, a.value, head, a.value_width);
    pack_panels_transposed(to.value_t, scratch, a.value_width, a.keys, a.value_width);
    pack_panels(to.value, a.keys, scratch, a.value_width, a.keys, a.value_width);
  });
}

int64_t forward_floats(const Arguments& a) { return Scratch(a, nullptr).floats; }

void forward(const Forward& a, int64_t head, int64_t block, float* scratch) {
  with_scalar(a, [&](auto scalar) { query_block<decltype(scalar)>(a, Scratch(a, scratch), head, block); });
}

}  // namespace FEM_ISA
}  // namespace fem::newton_kernels
