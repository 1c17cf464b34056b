#include "evaluate/perplexity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/sampler.h"
#include "models/evaluation_mode.h"
#include "util/check.h"

namespace fem {

double Perplexity::loss() const { return nats / static_cast<double>(tokens); }
double Perplexity::perplexity() const { return std::exp(loss()); }
double Perplexity::bits_per_byte() const { return nats / std::numbers::ln2 / static_cast<double>(bytes); }

Perplexity measure_perplexity(LanguageModel& model, const TokenStream& stream, const PerplexityOptions& options) {
  const auto& [length, batch_rows, max_tokens, part, parts, on_read] = options;
  FEM_CHECK(length >= 1 && batch_rows >= 1 && max_tokens >= 0,
            "perplexity: expected length and batch_rows of at least 1 and max_tokens of 0 (all) or more, got ", length,
            ", ", batch_rows, " and ", max_tokens);
  FEM_CHECK(stream.size() >= 2, "perplexity: expected a text of at least 2 tokens, got ", stream.size());
  const int64_t all = stream.size() - 1, wanted = max_tokens > 0 ? std::min(max_tokens, all) : all;
  const int64_t batch_tokens = batch_rows * length;
  const at::Device device = model->parameters().front().device();
  const EvaluationMode mode(model);
  Perplexity result;
  for (int64_t begin = part * batch_tokens; begin < wanted; begin += parts * batch_tokens) {
    const int64_t count = std::min(batch_tokens, wanted - begin);
    const PackedRows rows = packed_rows(stream, begin, count, length);
    const Batch batch{.cu_seqlens = rows.cu_seqlens.to(device)};
    result.nats +=
        model->surprise(rows.tokens.to(device), rows.targets.to(device), batch).sum(at::kDouble).item<double>();
    result.tokens += count;
    if (on_read) on_read(std::min(begin + parts * batch_tokens, wanted), wanted);
  }
  const double share = static_cast<double>(result.tokens) / static_cast<double>(all);
  result.bytes = std::llround(share * static_cast<double>(stream.bytes()));
  return result;
}

}  // namespace fem
