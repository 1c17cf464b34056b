#include "ops/chunks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "ops/differentiate.h"
#include "ops/sequences.h"

namespace fem {
namespace {

// Chunks s of all sequences that have one are rows side by side, those of longer sequences first: whoever has a
// chunk s + 1 is among the first of chunks s.
class Layout {
 public:
  Layout(const char* op, int64_t most_tokens, const ScanInputs& in) {
    const at::Tensor& first = in.tokens.front();
    batch_ = first.size(0), length_ = first.size(1);
    const std::vector<Sequence> sequences = sequences_of(batch_, length_, in.cu_seqlens, op);
    const auto count = static_cast<int64_t>(sequences.size());
    // Short sequences get short chunks: there is at most as much padding as there are tokens. A sequence without tokens
    // has a chunk of padding.
    chunk_ = std::clamp<int64_t>(batch_ * length_ / count, 1, most_tokens);
    const auto chunks = [&](int64_t n) {
      return std::max<int64_t>(1, (sequences[n].end - sequences[n].begin + chunk_ - 1) / chunk_);
    };

    std::vector<int64_t> order(count), rank(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return chunks(a) > chunks(b); });
    for (int64_t r = 0; r < count; ++r) rank[order[r]] = r;

    first_row_ = {0};
    std::vector<int64_t> token, place(batch_ * length_);
    for (int64_t step = 0, still = count; step < chunks(order[0]); ++step) {
      while (chunks(order[still - 1]) <= step) --still;
      for (int64_t r = 0; r < still; ++r) {
        const Sequence& s = sequences[order[r]];
        for (int64_t t = s.begin + step * chunk_; t < s.begin + (step + 1) * chunk_; ++t) {
          if (t < s.end) place[s.batch * length_ + t] = static_cast<int64_t>(token.size());
          token.push_back(t < s.end ? s.batch * length_ + t : -1);
        }
      }
      first_row_.push_back(first_row_.back() + still);
    }
    const auto on_device = [&](const std::vector<int64_t>& x) { return at::tensor(x, at::kLong).to(first.device()); };
    order_ = on_device(order), rank_ = on_device(rank), place_ = on_device(place);
    token_ = on_device(token);
    if (std::find(token.begin(), token.end(), -1) != token.end()) padding_ = token_ < 0;
    token_.clamp_min_(0);
    if (in.key_mask) real_ = in.key_mask->flatten().index_select(0, token_);
    if (padding_.defined()) real_ = in.key_mask ? real_.logical_and(padding_.logical_not()) : padding_.logical_not();
  }

  int64_t chunk() const { return chunk_; }
  int64_t steps() const { return static_cast<int64_t>(first_row_.size()) - 1; }
  int64_t first_row(int64_t step) const { return first_row_[step]; }
  // Sequences that have a chunk `step`.
  int64_t active(int64_t step) const { return step < steps() ? first_row_[step + 1] - first_row_[step] : 0; }

  // x [B T, ...] as rows of these steps; padding is 0.
  at::Tensor rows(const at::Tensor& x, int64_t begin, int64_t end) const {
    if (!x.defined()) return x;
    at::Tensor tokens = x.index_select(0, places(token_, begin, end));
    if (padding_.defined()) {
      std::vector<int64_t> shape(tokens.dim(), 1);
      shape[0] = -1;
      tokens = tokens.masked_fill(places(padding_, begin, end).view(shape), 0);
    }
    return tokens.unflatten(0, {-1, chunk_});
  }
  OptionalTensor real(int64_t begin, int64_t end) const {
    if (!real_.defined()) return std::nullopt;
    return places(real_, begin, end).unflatten(0, {-1, chunk_});
  }
  // All rows as [B, T, ...].
  at::Tensor tokens(const at::Tensor& rows) const {
    return rows.flatten(0, 1).index_select(0, place_).unflatten(0, {batch_, length_});
  }
  // States [N, ...] of sequences in the order of rows, and back.
  at::Tensor ranked(const at::Tensor& states) const { return states.index_select(0, order_); }
  at::Tensor unranked(const at::Tensor& states) const { return states.index_select(0, rank_); }

 private:
  at::Tensor places(const at::Tensor& x, int64_t begin, int64_t end) const {
    return x.slice(0, first_row_[begin] * chunk_, first_row_[end] * chunk_);
  }

  int64_t batch_, length_, chunk_;
  std::vector<int64_t> first_row_;  // of each step, and one past the last
  at::Tensor token_;                // the token of every place in the rows
  at::Tensor padding_, real_;       // of every place; undefined: none is padding, all are real
  at::Tensor place_;                // of every token
  at::Tensor order_, rank_;         // the sequence of each rank, and the other way round
};

// Steps begin <= s < end, which are worked on at once.
struct Portion {
  int64_t begin, end;
};

std::vector<Portion> portions_of(const Layout& layout, const ChunkScan& scan) {
  const int64_t most_tokens = scan.portion_memory / std::max<int64_t>(scan.token_memory, 1);
  std::vector<Portion> portions;
  for (int64_t step = 0; step < layout.steps(); ++step) {
    const bool fits =
        !portions.empty() &&
        (layout.first_row(step + 1) - layout.first_row(portions.back().begin)) * layout.chunk() <= most_tokens;
    if (fits)
      portions.back().end = step + 1;
    else
      portions.push_back({step, step + 1});
  }
  return portions;
}

struct Chain {
  at::Tensor before;   // [rows, ...]
  TensorVector ended;  // states of sequences that end with a step of the portion, in the order of steps
  at::Tensor carried;
};

Chain chain(const Layout& layout, const Portion& portion, const ChunkScan& scan, const TensorVector& summary,
            at::Tensor state) {
  // Split at once: the gradient of a slice is as large as all of it.
  std::vector<int64_t> active;
  for (int64_t step = portion.begin; step < portion.end; ++step) active.push_back(layout.active(step));
  std::vector<TensorVector> of_steps;
  for (const at::Tensor& x : summary) of_steps.push_back(x.split_with_sizes(active));
  TensorVector before, ended;
  for (int64_t step = portion.begin; step < portion.end; ++step) {
    TensorVector own;
    for (const TensorVector& parts : of_steps) own.push_back(parts[step - portion.begin]);
    before.push_back(state);
    const at::Tensor after = scan.advance(state, own);
    const int64_t still = layout.active(step + 1);
    if (still < layout.active(step)) ended.push_back(after.slice(0, still));
    state = after.slice(0, 0, still);
  }
  return {at::cat(before), ended, state};
}

// All [B, T, ...] as [B T, ...]: once, because it may copy.
TensorVector flat(const TensorVector& all) {
  TensorVector result;
  for (const at::Tensor& x : all) result.push_back(x.defined() ? x.flatten(0, 1) : x);
  return result;
}

TensorVector rows_of(const Layout& layout, const Portion& portion, const TensorVector& all) {
  TensorVector rows;
  for (const at::Tensor& x : all) rows.push_back(layout.rows(x, portion.begin, portion.end));
  return rows;
}

// The parts of states [sequences, ...] that chain finds in Chain::ended.
void add_ended(const Layout& layout, const Portion& portion, const at::Tensor& states, TensorVector& to) {
  for (int64_t step = portion.begin; step < portion.end; ++step) {
    const int64_t active = layout.active(step), still = layout.active(step + 1);
    if (still < active) to.push_back(states.defined() ? states.slice(0, still, active) : states);
  }
}

TensorVector joined(TensorVector a, const TensorVector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

at::Tensor cat_reversed(TensorVector parts) {
  std::reverse(parts.begin(), parts.end());
  return at::cat(parts);
}

}  // namespace

ScanReads scan_in_chunks(const char* op, const ChunkScan& scan, const ScanInputs& in) {
  const at::NoGradGuard no_grad;
  const Layout layout(op, scan.most_tokens, in);
  at::Tensor state = layout.ranked(in.initial);
  TensorVector ended;
  std::vector<TensorVector> reads;
  const TensorVector tokens = flat(in.tokens);
  for (const Portion& portion : portions_of(layout, scan)) {
    const ChunkRows rows{rows_of(layout, portion, tokens), in.parameters, layout.real(portion.begin, portion.end)};
    const Chain states = chain(layout, portion, scan, scan.summarise(rows), state);
    state = states.carried;
    ended = joined(ended, states.ended);
    reads.push_back(scan.read(rows, states.before));
  }
  const auto read = [&](size_t index) {
    TensorVector parts;
    for (TensorVector& portion : reads) parts.push_back(std::move(portion[index]));
    return parts.front().defined() ? layout.tokens(at::cat(parts)) : at::Tensor();
  };
  ScanReads out{read(0), read(1), read(2), {}, {}};
  out.state = layout.unranked(cat_reversed(ended));  // who ends first ranks last
  return out;
}

ScanGradients gradient_in_chunks(const char* op, const ChunkScan& scan, const ScanInputs& in, const ScanReads& grads) {
  const at::NoGradGuard no_grad;
  const Layout layout(op, scan.most_tokens, in);
  const auto or_none = [](const at::Tensor& x) { return x.defined() && x.numel() > 0 ? x : at::Tensor(); };  // no beta
  const std::vector<Portion> portions = portions_of(layout, scan);
  const TensorVector tokens = flat(in.tokens),
                     dreads = flat({grads.mean, or_none(grads.free_energy), grads.log_normalizer});
  const auto rows_in = [&](const Portion& portion) {
    return ChunkRows{rows_of(layout, portion, tokens), in.parameters, layout.real(portion.begin, portion.end)};
  };
  TensorVector starts{layout.ranked(in.initial)};
  for (size_t p = 0; p + 1 < portions.size(); ++p)
    starts.push_back(chain(layout, portions[p], scan, scan.summarise(rows_in(portions[p])), starts[p]).carried);

  const at::Tensor dended = grads.state.defined() ? layout.ranked(grads.state) : at::Tensor();
  const auto count = static_cast<int64_t>(tokens.size());
  at::Tensor dstate;                         // after the portion at hand
  std::vector<TensorVector> dtokens(count);  // the last portion first
  ScanGradients result{{}, TensorVector(in.parameters.size()), {}};
  for (size_t p = portions.size(); p-- > 0;) {
    const Portion& portion = portions[p];
    const ChunkRows rows = rows_in(portion);
    TensorVector seeds = rows_of(layout, portion, dreads);
    add_ended(layout, portion, dended, seeds);
    seeds.push_back(dstate);
    const auto outputs = [&](const TensorVector& x) {
      const ChunkRows part{{x.begin(), x.begin() + count}, {x.begin() + count, x.end() - 1}, rows.real};
      const Chain states = chain(layout, portion, scan, scan.summarise(part), x.back());
      return joined(joined(scan.read(part, states.before), states.ended), {states.carried});
    };
    const TensorVector d = gradient_of(outputs, joined(joined(rows.tokens, rows.parameters), {starts[p]}), seeds);
    for (int64_t i = 0; i < count; ++i) dtokens[i].push_back(d[i]);
    for (size_t i = 0; i < result.parameters.size(); ++i) {
      at::Tensor& sum = result.parameters[i];
      sum = sum.defined() ? sum + d[count + i] : d[count + i];
    }
    dstate = d.back();
  }
  for (const TensorVector& parts : dtokens)
    result.tokens.push_back(parts.front().defined() ? layout.tokens(cat_reversed(parts)) : at::Tensor());
  result.initial = layout.unranked(dstate);
  return result;
}

}  // namespace fem
