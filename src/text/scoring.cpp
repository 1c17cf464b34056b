#include "text/scoring.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "models/logits_at_once.h"
#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

// The last token of a sequence predicts nothing.
int64_t inputs_of(const ScoredTokens& sequence) { return static_cast<int64_t>(sequence.tokens.size()) - 1; }

// What Python's str.rstrip takes off, and so the harness.
constexpr std::string_view kSpaces[] = {"\t",           "\n",           "\v",           "\f",           "\r",
                                        "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
                                        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
                                        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
                                        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
                                        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

// The bytes of white space at the end of text.
size_t trailing_space(std::string_view text) {
  const size_t all = text.size();
  while (true) {
    const auto space = std::find_if(std::begin(kSpaces), std::end(kSpaces), [&](auto s) { return text.ends_with(s); });
    if (space == std::end(kSpaces)) return all - text.size();
    text.remove_suffix(space->size());
  }
}

}  // namespace

Continuation parted_before_space(Continuation text) {
  FEM_CHECK(!text.continuation.empty(), "likelihood: expected a continuation, got an empty one after \"", text.context,
            "\"");
  const size_t end = text.context.size() - trailing_space(text.context);
  text.continuation.insert(0, text.context, end);
  text.context.resize(end);
  return text;
}

ScoredTokens scored_pair(int64_t separator, Tokens context, const Tokens& whole) {
  FEM_CHECK(!whole.empty(), "likelihood: the tokenizer makes no token of the text");
  if (context.size() >= whole.size()) context.assign(whole.begin(), whole.end() - 1);
  const auto known = static_cast<int64_t>(context.size());
  Tokens tokens{separator};
  tokens.insert(tokens.end(), context.begin(), context.end());
  tokens.insert(tokens.end(), whole.begin() + known, whole.end());
  return {std::move(tokens), 1 + known};
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
  FEM_CHECK(!nats.isnan().any().item<bool>(),
            "likelihood: the model's logits are not numbers; its parameters may be broken");
  const at::Tensor likeliest = (numbers.argmax(-1) == wanted).cpu();
  for (int64_t i = 0; i < logits.size(0); ++i) {
    Likelihood& result = results_[row_[added_++]];
    result.log_probability -= nats.const_data_ptr<double>()[i];
    result.greedy = result.greedy && likeliest.const_data_ptr<bool>()[i];
  }
}

}  // namespace fem
