#include "models/attention.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fem/ops/modulate.h"
#include "io/mixer_config.h"
#include "mixer/positions.h"
#include "mixer/streaming.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "ops/sequences.h"
#include "priors/keys_and_values.h"
#include "util/check.h"

namespace fem {
namespace {

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
  if (!state) return attended(x, batch, nullptr);
  const int64_t width = options_.n_embd / options_.n_head;
  Memory memory = memory_of_keys_and_values(options_.n_head, width, width, x.scalar_type());
  memory.layer = "attention, " + rope_words(options_);
  return stream("attention", x, batch, memory, *state, [&](MixerState& next) { return attended(x, batch, &next); });
}

at::Tensor AttentionImpl::attended(const at::Tensor& x, const Batch& batch, MixerState* state) const {
  std::vector<int64_t> borders;
  if (batch.cu_seqlens) borders = borders_of(*batch.cu_seqlens, x.size(1), "attention");
  const std::vector<at::Tensor> projected = project(x, {query_, key_, value_});
  AfterModulation turned;
  if (options_.rotates())
    turned.rotation =
        rotation_of(positions_of(x, batch, state).index, options_.n_embd / options_.n_head, options_.rope_theta);
  const auto heads = [&](size_t index, const AfterModulation& after) {
    return by_head(projected[index], options_.n_head, {}, after);
  };
  const at::Tensor query = heads(0, turned), key = heads(1, turned), value = heads(2, {});
  const at::Tensor read =
      batch.cu_seqlens ? packed(query, key, value, borders) : padded(query, key, value, batch, state);
  return project(read.flatten(2), {output_})[0];
}

// Neighbouring sequences of one length are a batch: torch's attention knows no borders.
at::Tensor AttentionImpl::packed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const std::vector<int64_t>& borders) const {
  std::vector<at::Tensor> reads;
  for (size_t first = 0, next; first + 1 < borders.size(); first = next) {
    const int64_t length = borders[first + 1] - borders[first];
    for (next = first + 1; next + 1 < borders.size() && borders[next + 1] - borders[next] == length;) ++next;
    if (length == 0) continue;
    const auto batch_of = [&](const at::Tensor& rows) {
      return rows.narrow(1, borders[first], borders[next] - borders[first]).unflatten(1, {-1, length}).squeeze(0);
    };
    reads.push_back(
        attend(batch_of(query), batch_of(key), batch_of(value), {}, /*causal=*/true).flatten(0, 1).unsqueeze(0));
  }
  return reads.empty() ? value : at::cat(reads, 1);
}

// Rows of a batch, with padding and with a past if there is any. A padded token is no position and nobody sees it.
at::Tensor AttentionImpl::padded(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const Batch& batch, MixerState* state) const {
  const int64_t length = query.size(1), past = state ? state->tokens : 0;
  KeysAndValues seen{key, value, batch.mask};
  if (state) seen = remember(state->caches, seen);
  if (!seen.mask && past == 0) return attend(query, seen.key, seen.value, {}, /*causal=*/true);
  if (!seen.mask && length == 1) return attend(query, seen.key, seen.value, {}, /*causal=*/false);
  at::Tensor visible = at::ones({length, past + length}, query.options().dtype(at::kBool)).tril(past);
  // A padded query sees itself, so that no row is empty: its output is nobody's.
  if (seen.mask)
    visible = visible.logical_and(seen.mask->view({-1, 1, 1, past + length}))
                  .logical_or(at::eye(length, past + length, visible.options()).roll(past, 1));
  return attend(query, seen.key, seen.value, visible, /*causal=*/false);
}

}  // namespace fem
