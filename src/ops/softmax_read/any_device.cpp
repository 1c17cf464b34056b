// softmax_read on devices without kernels of their own: torch's fused attention mixes [v, e^{beta v} - o]. Queries that
// see neither all keys nor a triangle of them go in blocks, so that nothing of size Tq x Tk is ever made (README.md).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <functional>

#include "ops/differentiate.h"
#include "ops/softmax_read/attention.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/softmax_read/visibility.h"

namespace fem {
namespace {

constexpr int64_t kMostQueries = 256, kFewestQueries = 16;  // of a block
constexpr int64_t kMostScores = 1 << 26;                    // of a block, all heads: where torch has no fused kernel

// Queries and the keys they see between them. Both are runs of tokens.
struct Block {
  int64_t query, queries, key, keys;
  enum { kAll, kTriangle, kSome } sees;
};

// The longest block that begins at query t and needs no mask.
Block unmasked_block(const Intervals& visible, int64_t t) {
  const auto queries = static_cast<int64_t>(visible.begin.size());
  const int64_t begin = visible.begin[t], end = visible.end[t];
  int64_t same = t, rising = t;  // one past the last query that sees the same, and one key more than that before it
  while (same < queries && visible.begin[same] == begin && visible.end[same] == end) ++same;
  while (rising < queries && visible.begin[rising] == begin && visible.end[rising] == begin + 1 + rising - t) ++rising;
  if (rising > same) return {t, rising - t, begin, rising - t, Block::kTriangle};
  return {t, same - t, begin, end - begin, Block::kAll};
}

// Blocks of all queries in order. Those without a mask may be long, if they can be done at once.
std::vector<Block> blocks_of(const Intervals& visible, bool masked, int64_t most,
                             const std::function<bool(const Block&)>& at_once) {
  std::vector<Block> blocks;
  const auto queries = static_cast<int64_t>(visible.begin.size());
  for (int64_t t = 0; t < queries; t += blocks.back().queries) {
    const int64_t count = std::min(most, queries - t), begin = visible.begin[t], end = visible.end[t + count - 1];
    Block block = unmasked_block(visible, t);
    if (masked || block.queries < count) {
      block = {t, count, begin, end - begin, Block::kSome};
    } else if (block.queries > count && !at_once(block)) {
      block = {t, count, begin, end - begin, block.sees};
    }
    blocks.push_back(block);
  }
  return blocks;
}

// The operator's inputs as blocks are cut from them, heads first. What e^{beta v} is computed from is in the dtype of
// computation.
struct HeadsFirst {
  at::Tensor query, key;   // [B, H, T, W], padded
  at::Tensor value, beta;  // [B, H, Tk, V], [H, 1, V] or undefined
  at::Tensor bias;         // of a block's scores [1, H or 1, queries, keys], or undefined
};

at::Tensor padded(const at::Tensor& x, int64_t width) {
  return x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
}

struct BlockRead {
  at::Tensor mean, free_energy, log_normalizer;  // [B, H, queries, V] twice, [B, H, queries]
};

// The offset o is 1 in channels of small beta v: a mean of e^{beta v} - 1 keeps the digits that F / beta needs, a mean
// of e^{beta v} rounded to bfloat16 does not.
BlockRead read_seen(const HeadsFirst& in, const Sight& sight, double scale) {
  const int64_t width = in.value.size(3);
  at::Tensor x = in.value, is_small;
  if (in.beta.defined()) {
    const at::Tensor exponent = in.beta * in.value;
    is_small = exponent.detach().abs().amax({0, 2}, /*keepdim=*/true) < 1;
    x = at::cat({x, at::where(is_small, exponent.expm1(), exponent.exp())}, 3);
  }
  const auto [mixed, log_normalizer] =
      attend(in.query, in.key, padded(x.to(in.query.scalar_type()), in.query.size(3)), sight, scale);
  BlockRead read{mixed.slice(3, 0, width).to(in.value.scalar_type()), {}, log_normalizer};
  if (in.beta.defined()) {
    const at::Tensor rest = mixed.slice(3, width, 2 * width).to(in.value.scalar_type());  // z - o
    const at::Tensor log_z = at::where(is_small, 1, rest).log() + at::where(is_small, rest, 0).log1p();
    read.free_energy = log_z / in.beta;
  }
  return read;
}

// The same with a bias, whose gradient torch's fused kernels do not have: by products, and visible [B or 1, 1, queries,
// keys] tells what is seen.
BlockRead read_biased(const HeadsFirst& in, const at::Tensor& visible, double scale) {
  const auto exact = in.value.scalar_type();
  const at::Tensor scores =
      at::matmul(in.query.to(exact) * scale, in.key.to(exact).transpose(2, 3)) + in.bias.to(exact);
  const at::Tensor hidden = scores.masked_fill(visible.logical_not(), -INFINITY), p = at::softmax(hidden, -1);
  BlockRead read{at::matmul(p, in.value), {}, at::logsumexp(hidden, -1)};
  if (in.beta.defined()) read.free_energy = at::matmul(p, at::exp(in.beta * in.value)).log() / in.beta;
  return read;
}

class Reader {
 public:
  explicit Reader(const SoftmaxReadOp::Inputs& in)
      : exact_(at::toOpMathType(in.query.scalar_type())),
        scale_(in.scale_of_scores()),
        given_(in),
        visible_(visible_intervals(in.query.size(1), in.key.size(1), in.causal, in.window, in.cu_seqlens)) {
    const int64_t width = attention_width(in.query.size(3), in.value.size(3) * (in.beta ? 2 : 1));
    in_ = {padded(in.query.transpose(1, 2), width),
           padded(real_tokens(in.key, in.key_mask).transpose(1, 2), width),
           real_tokens(in.value, in.key_mask).transpose(1, 2).to(exact_),
           in.beta ? in.beta->to(exact_).unsqueeze(1) : at::Tensor(),
           {}};
    const auto borders = [&](const std::vector<int32_t>& x) {
      return at::tensor(x, at::kInt).to(in.query.device()).view({1, 1, in.query.size(1), 1});
    };
    begin_ = borders(visible_.begin), end_ = borders(visible_.end);
  }

  const HeadsFirst& inputs() const { return in_; }

  // in training, torch chooses among the kernels that can be differentiated
  std::vector<Block> blocks(bool training) const {
    const int64_t scores = std::max<int64_t>(in_.key.size(0) * in_.key.size(1) * in_.key.size(2), 1);
    const auto at_once = [&](const Block& block) {
      HeadsFirst part = cut(block);
      if (training) part.query = part.query.detach().requires_grad_();
      return is_fused(part.query, part.key, {block.sees == Block::kTriangle}, scale_);
    };
    return blocks_of(visible_, given_.key_mask.has_value() || given_.is_biased(),
                     std::clamp(kMostScores / scores, kFewestQueries, kMostQueries), at_once);
  }

  HeadsFirst cut(const Block& block) const {
    const auto keys = [&](const at::Tensor& x) { return x.narrow(2, block.key, block.keys); };
    const at::Tensor bias = given_.is_biased()
                                ? score_bias(given_, ScoreTile{block.query, block.queries, block.key, block.keys})
                                : at::Tensor();
    return {in_.query.narrow(2, block.query, block.queries), keys(in_.key), keys(in_.value), in_.beta, bias};
  }

  BlockRead read(const Block& block, const HeadsFirst& part) const {
    if (block.keys == 0 || part.query.numel() == 0) return blank(part);
    if (block.sees != Block::kSome) return read_seen(part, {block.sees == Block::kTriangle}, scale_);
    const at::Tensor visible = mask_of(block), empty = visible.any(-1, true).logical_not();
    // A query that sees nothing is let see everything and its result dropped: no NaN in either direction.
    const at::Tensor let_see = visible.logical_or(empty);
    BlockRead read = part.bias.defined() ? read_biased(part, let_see, scale_)
                                         : read_seen(part, sight_of(let_see, part.query.scalar_type()), scale_);
    read.mean = read.mean.masked_fill(empty, 0);
    if (read.free_energy.defined()) read.free_energy = read.free_energy.masked_fill(empty, 0);
    read.log_normalizer = read.log_normalizer.masked_fill(empty.squeeze(-1), -INFINITY);
    return read;
  }

 private:
  // Nothing is seen. Sums over no keys: the inputs are part of the result, with gradients 0.
  static BlockRead blank(const HeadsFirst& part) {
    const at::Tensor none = part.value.new_zeros({part.query.size(0), part.query.size(1), part.query.size(2), 1});
    const at::Tensor mean = none * part.value.sum(2, true);
    return {mean, part.beta.defined() ? mean / part.beta : at::Tensor(), none.squeeze(-1) - INFINITY};
  }

  at::Tensor mask_of(const Block& block) const {
    const at::Tensor index = at::arange(block.key, block.key + block.keys, begin_.options());
    const auto queries = [&](const at::Tensor& x) { return x.narrow(2, block.query, block.queries); };
    const at::Tensor visible = (index >= queries(begin_)).logical_and(index < queries(end_));
    if (!given_.key_mask) return visible;
    return visible.logical_and(given_.key_mask->narrow(1, block.key, block.keys).unsqueeze(1).unsqueeze(1));
  }

  at::ScalarType exact_;
  double scale_;
  SoftmaxReadOp::Inputs given_;
  Intervals visible_;
  at::Tensor begin_, end_;  // visible_, [1, 1, Tq, 1] on the device
  HeadsFirst in_;
};

}  // namespace

SoftmaxReadOp::Outputs SoftmaxReadOp::elsewhere(const Inputs& in) {
  const at::NoGradGuard no_grad;
  const Reader reader(in);
  const auto &query = in.query, &value = in.value;
  const std::vector<int64_t> shape{query.size(0), query.size(1), query.size(2), value.size(3)};
  const auto exact = query.options().dtype(at::toOpMathType(query.scalar_type()));
  Outputs out{at::empty(shape, query.options()), in.beta ? at::empty(shape, exact) : at::empty({0}, exact),
              at::empty({shape[0], shape[1], shape[2]}, exact)};
  for (const Block& block : reader.blocks(/*training=*/false)) {
    const BlockRead read = reader.read(block, reader.cut(block));
    const auto put = [&](const at::Tensor& all, const at::Tensor& part) {
      all.narrow(1, block.query, block.queries).copy_(part.transpose(1, 2));
    };
    put(out.mean, read.mean);
    if (in.beta) put(out.free_energy, read.free_energy);
    put(out.log_normalizer, read.log_normalizer);
  }
  return out;
}

SoftmaxReadOp::Inputs SoftmaxReadOp::gradient_elsewhere(const BackwardOf<SoftmaxReadOp>& b) {
  const at::NoGradGuard no_grad;
  const Reader reader(b.in);
  const HeadsFirst& in = reader.inputs();
  const auto sums = [&](const at::Tensor& x) {
    return x.defined() ? at::zeros(x.sizes(), in.value.options()) : at::Tensor();
  };
  const HeadsFirst all{sums(in.query), sums(in.key), sums(in.value), sums(in.beta), sums(or_undefined(b.in.bias))};
  for (const Block& block : reader.blocks(/*training=*/true)) {
    const HeadsFirst part = reader.cut(block);
    const auto of_block = [&](const at::Tensor& grad) {
      return grad.narrow(1, block.query, block.queries).transpose(1, 2).to(in.value.scalar_type());
    };
    const TensorVector d = gradient_of(
        [&](const TensorVector& x) -> TensorVector {
          const BlockRead read = reader.read(block, {x[0], x[1], x[2], x[3], x[4]});
          return {read.mean, read.free_energy};
        },
        {part.query, part.key, part.value, part.beta, part.bias},
        {of_block(b.grads.mean), b.in.beta ? of_block(b.grads.free_energy) : at::Tensor()});
    all.query.narrow(2, block.query, block.queries).add_(d[0]);
    all.key.narrow(2, block.key, block.keys).add_(d[1]);
    all.value.narrow(2, block.key, block.keys).add_(d[2]);
    if (all.beta.defined()) all.beta.add_(d[3]);
    if (all.bias.defined())  // slopes make a bias for every head of one for all
      all.bias.narrow(1, block.query, block.queries)
          .narrow(2, block.key, block.keys)
          .add_(d[4].squeeze(0).sum_to_size({all.bias.size(0), block.queries, block.keys}));
  }
  const auto result = [&](const at::Tensor& sum, const at::Tensor& like) {
    return sum.slice(3, 0, like.size(3)).transpose(1, 2);
  };
  Inputs d;
  d.query = result(all.query, b.in.query), d.key = result(all.key, b.in.key), d.value = result(all.value, b.in.value);
  if (all.beta.defined()) d.beta = all.beta.squeeze(1);
  d.bias = if_defined(all.bias);
  return d;
}

}  // namespace fem
