#include "models/attention.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fem/ops/modulate.h"
#include "fem/ops/rotary.h"
#include "io/mixer_config.h"
#include "mixer/parameters.h"
#include "ops/sequences.h"
#include "priors/projection.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kKey = "key";
constexpr const char* kValue = "value";
constexpr const char* kReal = "real";  // [B, T] which cached tokens are no padding; absent while all are

// [B, T, H, K] each; mask true where a query may look.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& mask, bool causal) {
  return at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, 0.0,
                                          causal)
      .transpose(1, 2);
}

}  // namespace

void check_attention(const MixerOptions& options) {
  static const std::set<std::string> taken{"n_embd", "n_head", "bias", "use_rope", "rope_theta"};
  const nlohmann::json set = to_json(options), defaults = to_json(MixerOptions());
  for (const auto& [name, value] : set.items())
    FEM_CHECK(taken.count(name) || value == defaults[name], "attention: plain attention has no mixer option ", name,
              "; remove it, or set block_mixer to \"fem\"");
  FEM_CHECK(options.n_head >= 1 && options.n_embd % (2 * options.n_head) == 0,
            "attention: expected n_embd to be a multiple of twice n_head, got ", options.n_embd, " and ",
            options.n_head);
}

std::vector<ParameterSpec> attention_parameters(const MixerOptions& options) {
  std::vector<ParameterSpec> specs;
  for (const char* name : {"query", "key", "value", "output"})
    declare_linear(specs, name, options.n_embd, options.n_embd, options.bias);
  return specs;
}

AttentionImpl::AttentionImpl(const MixerOptions& options) : options_(options) {
  std::vector<at::Tensor*> slots;
  for (LinearWeights* linear : {&query_, &key_, &value_, &output_}) {
    slots.push_back(&linear->weight);
    if (options.bias) slots.push_back(&linear->bias);
  }
  const std::vector<ParameterSpec> specs = attention_parameters(options);
  for (size_t i = 0; i < specs.size(); ++i) *slots[i] = register_dotted(*this, specs[i].name, initial_value(specs[i]));
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const Batch& batch, MixerState* state) {
  const std::vector<at::Tensor> projected = project(x, {query_, key_, value_});
  const auto by_head = [&](size_t index) { return projected[index].unflatten(-1, {options_.n_head, -1}); };
  const at::Tensor query = by_head(0), key = by_head(1), value = by_head(2);
  const at::Tensor read =
      batch.cu_seqlens ? packed(query, key, value, *batch.cu_seqlens) : padded(query, key, value, batch, state);
  return project(read.flatten(2), {output_})[0];
}

at::Tensor AttentionImpl::rotated(const at::Tensor& x, const RotaryTable& table) const {
  return options_.rotates() ? modulate(x, {}, {table, {}, {}}) : x;
}

// Neighbouring sequences of one length are a batch: torch's attention knows no borders.
at::Tensor AttentionImpl::packed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const at::Tensor& cu_seqlens) const {
  const std::vector<int64_t> borders = borders_of(cu_seqlens, query.size(1), "attention");
  std::vector<at::Tensor> reads;
  for (size_t first = 0, next; first + 1 < borders.size(); first = next) {
    const int64_t length = borders[first + 1] - borders[first];
    for (next = first + 1; next + 1 < borders.size() && borders[next + 1] - borders[next] == length;) ++next;
    if (length == 0) continue;
    const auto batch_of = [&](const at::Tensor& rows) {
      return rows.narrow(1, borders[first], borders[next] - borders[first]).unflatten(1, {-1, length}).squeeze(0);
    };
    const RotaryTable table = rotary_table(0, length, query.size(3), query, options_.rope_theta);
    reads.push_back(attend(rotated(batch_of(query), table), rotated(batch_of(key), table), batch_of(value), {},
                           /*causal=*/true)
                        .flatten(0, 1)
                        .unsqueeze(0));
  }
  return reads.empty() ? value : at::cat(reads, 1);
}

// Of the new tokens' positions; those of rows that stand apart are their own.
RotaryTable AttentionImpl::table_of(const at::Tensor& query, const Batch& batch, const MixerState* state) const {
  const int64_t start = state ? state->tokens : 0, length = query.size(1), width = query.size(3);
  const bool apart = state && state->positions.defined();
  if (!batch.mask && !apart) return rotary_table(start, length, width, query, options_.rope_theta);
  const at::Tensor index =
      batch.mask ? (batch.mask->cumsum(1) - 1).clamp_min(0) : at::arange(length, query.options().dtype(at::kLong));
  return rotary_table(apart ? index + state->positions.unsqueeze(1) : index + start, width, query, options_.rope_theta);
}

// Rows of a batch, with padding and with a past if there is any. A padded token is no position and nobody sees it.
at::Tensor AttentionImpl::padded(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const Batch& batch, MixerState* state) const {
  const int64_t length = query.size(1);
  const RotaryTable table = table_of(query, batch, state);
  at::Tensor keys = rotated(key, table), values = value, real;
  if (batch.mask) real = *batch.mask;
  int64_t past = 0;
  if (state) {
    past = state->tokens;
    state->caches[kKey].append(keys);
    state->caches[kValue].append(values);
    keys = state->caches[kKey].rows();
    values = state->caches[kValue].rows();
    if (batch.mask && !state->positions.defined()) {
      state->positions = at::full({query.size(0)}, past, query.options().dtype(at::kLong));
      if (past > 0) state->caches[kReal].append(at::ones({query.size(0), past}, batch.mask->options()));
    }
    if (state->positions.defined()) {
      if (!real.defined()) real = at::ones({query.size(0), length}, query.options().dtype(at::kBool));
      state->caches[kReal].append(real);
      state->positions = state->positions + real.sum(1);
      real = state->caches[kReal].rows();
    }
    state->tokens += length;
  }
  const at::Tensor queries = rotated(query, table);
  if (!real.defined() && past == 0) return attend(queries, keys, values, {}, /*causal=*/true);
  if (!real.defined() && length == 1) return attend(queries, keys, values, {}, /*causal=*/false);
  at::Tensor visible = at::ones({length, past + length}, query.options().dtype(at::kBool)).tril(past);
  // A padded query sees itself, so that no row is empty: its output is nobody's.
  if (real.defined())
    visible = visible.logical_and(real.view({-1, 1, 1, past + length}))
                  .logical_or(at::eye(length, past + length, visible.options()).roll(past, 1));
  return attend(queries, keys, values, visible, /*causal=*/false);
}

}  // namespace fem
