#include "text/scoring.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <numeric>

#include "models/logits_at_once.h"
#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

// The last token of a sequence predicts nothing.
int64_t inputs_of(const ScoredTokens& sequence) { return static_cast<int64_t>(sequence.tokens.size()) - 1; }

}  // namespace

int64_t first_beyond(const Tokens& context, const Tokens& whole) {
  FEM_CHECK(!whole.empty(), "likelihood: the tokenizer makes no token of the text");
  const auto common = std::mismatch(context.begin(), context.end(), whole.begin(), whole.end()).second;
  return std::min<int64_t>(common - whole.begin(), static_cast<int64_t>(whole.size()) - 1);
}

ScoredRows::ScoredRows(std::vector<ScoredTokens> sequences, int64_t batch_tokens, int64_t vocab_size)
    : sequences_(std::move(sequences)),
      batch_tokens_(batch_tokens),
      at_once_(logits_at_once(vocab_size)),
      order_(sequences_.size()),
      results_(sequences_.size()) {
  FEM_CHECK(batch_tokens >= 1, "likelihood: expected batch_tokens of at least 1, got ", batch_tokens);
  for (const ScoredTokens& sequence : sequences_)
    FEM_CHECK(sequence.begin >= 1 && sequence.begin <= inputs_of(sequence),
              "likelihood: expected a sequence scored from one of its tokens 1 to ", inputs_of(sequence), " on, got ",
              sequence.begin);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return inputs_of(sequences_[a]) > inputs_of(sequences_[b]); });
}

bool ScoredRows::next() {
  FEM_CHECK(added_ == static_cast<int64_t>(row_.size()), "likelihood: expected the logits of ", row_.size(),
            " places before the next row, got ", added_);
  Tokens tokens, borders{0}, places, targets;
  row_.clear();
  added_ = 0;
  for (; done_ < order_.size(); ++done_) {
    const ScoredTokens& sequence = sequences_[order_[done_]];
    const int64_t inputs = inputs_of(sequence);
    if (!tokens.empty() && borders.back() + inputs > batch_tokens_) break;
    for (int64_t i = sequence.begin; i <= inputs; ++i) {
      places.push_back(borders.back() + i - 1);
      targets.push_back(sequence.tokens[i]);
      row_.push_back(order_[done_]);
    }
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end() - 1);
    borders.push_back(borders.back() + inputs);
  }
  if (tokens.empty()) return false;
  tokens_ = at::tensor(tokens, at::kLong).unsqueeze(0);
  cu_seqlens_ = at::tensor(borders, at::kInt);
  places_ = at::tensor(places, at::kLong);
  targets_ = at::tensor(targets, at::kLong);
  return true;
}

void ScoredRows::add(const at::Tensor& logits) {
  const auto all = static_cast<int64_t>(row_.size());
  FEM_CHECK(logits.dim() == 2 && logits.size(0) <= all - added_, "likelihood: expected logits of at most ",
            all - added_, " places, [n, vocab_size], got ", shape_of(logits));
  const at::Tensor wanted = targets_.narrow(0, added_, logits.size(0)).to(logits.device());
  const at::Tensor numbers = logits.to(at::toOpMathType(logits.scalar_type()));
  const at::Tensor nats = at::cross_entropy_loss(numbers, wanted, {}, at::Reduction::None).to(at::kCPU, at::kDouble);
  const at::Tensor likeliest = (numbers.argmax(-1) == wanted).cpu();
  for (int64_t i = 0; i < logits.size(0); ++i) {
    Likelihood& result = results_[row_[added_++]];
    result.log_probability -= nats.const_data_ptr<double>()[i];
    result.greedy = result.greedy && likeliest.const_data_ptr<bool>()[i];
  }
}

}  // namespace fem
