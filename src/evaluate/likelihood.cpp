#include "evaluate/likelihood.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "models/evaluation_mode.h"
#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

// Logits that are in memory at once.
constexpr int64_t kLogitsAtOnce = 1 << 23;

struct Sequence {
  Tokens tokens;
  int64_t begin;  // of the continuation

  int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
};

bool is_space(char byte) { return std::isspace(static_cast<unsigned char>(byte)) != 0; }

Sequence sequence_of(const Continuation& text, const Tokenizer& tokenizer) {
  FEM_CHECK(!text.continuation.empty(), "likelihood: expected a continuation, got an empty one after \"", text.context,
            "\"");
  const bool joined = text.context.empty() || is_space(text.context.back()) || is_space(text.continuation.front());
  Sequence sequence{{tokenizer.separator()}, 0};
  const auto add = [&](const std::string& part) {
    const Tokens tokens = tokenizer.encode(part);
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  };
  if (!text.context.empty()) add(text.context);
  sequence.begin = static_cast<int64_t>(sequence.tokens.size());
  add(joined ? text.continuation : " " + text.continuation);
  FEM_CHECK(sequence.begin <= sequence.inputs(), "likelihood: the tokenizer makes no token of \"", text.continuation,
            "\"");
  return sequence;
}

// Scores sequences packed in one row; results go to where each of them belongs.
void score(LanguageModel& model, const std::vector<Sequence>& all, const std::vector<size_t>& chosen,
           std::vector<Likelihood>& results) {
  Tokens inputs, borders{0}, places, targets;
  for (const size_t index : chosen) {
    const auto& [tokens, begin] = all[index];
    for (int64_t i = begin; i <= all[index].inputs(); ++i) {
      places.push_back(borders.back() + i - 1);
      targets.push_back(tokens[i]);
    }
    inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
    borders.push_back(static_cast<int64_t>(inputs.size()));
  }
  const at::Device device = model->parameters().front().device();
  const auto tensor = [&](const Tokens& values) { return at::tensor(values, at::kLong).to(device); };
  const at::Tensor wanted = tensor(targets);
  const at::Tensor hidden = model->hidden(tensor(inputs).unsqueeze(0), Batch{.cu_seqlens = tensor(borders)})
                                .squeeze(0)
                                .index_select(0, tensor(places));

  const int64_t at_once = std::max<int64_t>(kLogitsAtOnce / model->options.vocab_size, 1);
  std::vector<at::Tensor> nats, likeliest;
  for (int64_t first = 0; first < hidden.size(0); first += at_once) {
    const at::Tensor logits = model->head(hidden.slice(0, first, first + at_once));
    const at::Tensor part = wanted.slice(0, first, first + at_once);
    nats.push_back(
        at::cross_entropy_loss(logits.to(at::toOpMathType(logits.scalar_type())), part, {}, at::Reduction::None));
    likeliest.push_back(logits.argmax(-1) == part);
  }
  const at::Tensor costs = at::cat(nats).to(at::kCPU, at::kDouble), hits = at::cat(likeliest).to(at::kCPU);
  int64_t first = 0;
  for (const size_t index : chosen) {
    const int64_t count = all[index].inputs() - all[index].begin + 1;
    results[index].log_probability = -costs.slice(0, first, first + count).sum().item<double>();
    results[index].greedy = hits.slice(0, first, first + count).all().item<bool>();
    first += count;
  }
}

}  // namespace

std::vector<Likelihood> likelihoods(LanguageModel& model, const Tokenizer& tokenizer,
                                    const std::vector<Continuation>& texts, int64_t batch_tokens,
                                    const std::function<void(int64_t done)>& on_scored) {
  FEM_CHECK(batch_tokens >= 1, "likelihood: expected batch_tokens of at least 1, got ", batch_tokens);
  std::vector<Sequence> sequences;
  for (const Continuation& text : texts) sequences.push_back(sequence_of(text, tokenizer));
  // The longest first: what needs the most memory is seen at once.
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].inputs() > sequences[b].inputs(); });

  const EvaluationMode mode(model);
  std::vector<Likelihood> results(texts.size());
  for (size_t done = 0; done < order.size();) {
    std::vector<size_t> chosen;
    int64_t tokens = 0;
    while (done < order.size() && (chosen.empty() || tokens + sequences[order[done]].inputs() <= batch_tokens)) {
      tokens += sequences[order[done]].inputs();
      chosen.push_back(order[done++]);
    }
    score(model, sequences, chosen, results);
    if (on_scored) on_scored(static_cast<int64_t>(done));
  }
  return results;
}

}  // namespace fem
