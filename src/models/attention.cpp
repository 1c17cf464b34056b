// attention: four projections, rotary positions, torch's fused attention kernel. What continues a state is read by
// softmax_read: torch's kernel has no past, and of few queries its bits depend on the number of threads.
#include <ATen/ATen.h>

#include "fem/ops/modulate.h"
#include "fem/ops/softmax_read.h"
#include "mixer/positions.h"
#include "mixer/streaming.h"
#include "models/token_mixer.h"
#include "models/traced.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "ops/sequences.h"
#include "priors/keys_and_values.h"
#include "util/check.h"

namespace fem {
namespace {

struct AttentionWeights {
  LinearWeights query, key, value, output;
};

AttentionWeights attention_weights(const std::vector<at::Tensor>& weights, bool bias) {
  auto next = weights.begin();
  const auto linear = [&] {
    const at::Tensor weight = *next++;
    return LinearWeights{weight, bias ? *next++ : at::Tensor()};
  };
  const LinearWeights query = linear(), key = linear(), value = linear();
  return {query, key, value, linear()};
}

// Queries, keys and values, [B, T, H, K] each.
struct Heads {
  at::Tensor query, key, value;
};

// visible: [.., Tq, Tk] true where a query may look, besides what causal says.
at::Tensor attend(const Heads& h, const std::optional<at::Tensor>& visible, bool causal) {
  return at::scaled_dot_product_attention(h.query.transpose(1, 2), h.key.transpose(1, 2), h.value.transpose(1, 2),
                                          visible, 0.0, causal)
      .transpose(1, 2);
}

// Neighbouring sequences of one length are a batch: torch's attention knows no borders.
at::Tensor attend_packed(const Heads& h, const std::vector<int64_t>& borders, bool causal) {
  std::vector<at::Tensor> reads;
  for (size_t first = 0, next; first + 1 < borders.size(); first = next) {
    const int64_t length = borders[first + 1] - borders[first];
    for (next = first + 1; next + 1 < borders.size() && borders[next + 1] - borders[next] == length;) ++next;
    if (length == 0) continue;
    const auto batch_of = [&](const at::Tensor& rows) {
      return rows.narrow(1, borders[first], borders[next] - borders[first]).unflatten(1, {-1, length}).squeeze(0);
    };
    const Heads sequences{batch_of(h.query), batch_of(h.key), batch_of(h.value)};
    reads.push_back(attend(sequences, {}, causal).flatten(0, 1).unsqueeze(0));
  }
  return reads.empty() ? h.value : at::cat(reads, 1);
}

// The same where a graph is made and the borders have no values yet.
at::Tensor attend_packed_traced(const Heads& h, const at::Tensor& cu_seqlens, bool causal) {
  const at::Tensor token = at::arange(h.query.sym_size(1), cu_seqlens.options());
  const at::Tensor sequence = at::bucketize(token, cu_seqlens, /*out_int32=*/false, /*right=*/true);
  const at::Tensor together = sequence.unsqueeze(1) == sequence;
  return attend(h, causal ? together.tril() : together, /*causal=*/false);
}

// Rows of a batch, with padding if there is any. A padded token is no position and nobody sees it.
at::Tensor attend_padded(const Heads& h, const std::optional<at::Tensor>& mask, bool causal) {
  if (!mask) return attend(h, {}, causal);
  const c10::SymInt length = h.query.sym_size(1);
  const auto bools = h.query.options().dtype(at::kBool);
  const at::Tensor all = at::ones_symint({length, length}, bools);
  // A padded query sees itself, so that no row is empty: its output is nobody's.
  const at::Tensor visible = (causal ? all.tril() : all)
                                 .logical_and(mask->unsqueeze(1).unsqueeze(1))
                                 .logical_or(at::eye_symint(length, length, bools));
  return attend(h, visible, /*causal=*/false);
}

// The same after the tokens of a state, which remembers these as well.
at::Tensor attend_after(const Heads& h, const Batch& batch, MixerState& state) {
  const KeysAndValues seen = remember(state.caches, {h.key, h.value, batch.mask});
  if (state.tokens == 0) return attend_padded(h, batch.mask, /*causal=*/true);
  return softmax_read(h.query, seen.key, seen.value, std::nullopt, {.key_mask = seen.mask}).mean;
}

at::Tensor attention(const at::Tensor& x, const AttentionWeights& w, const MixerOptions& options, const Batch& batch,
                     MixerState* state) {
  const std::vector<at::Tensor> projected = project(x, {w.query, w.key, w.value});
  AfterModulation rotated;
  if (options.rotates())
    rotated.rotation =
        rotation_of(positions_of(x, batch, state).index, options.n_embd / options.n_head, options.rope_theta);
  const auto heads = [&](size_t index, const AfterModulation& after) {
    return by_head(projected[index], options.n_head, {}, after);
  };
  const Heads h{heads(0, rotated), heads(1, rotated), heads(2, {})};
  at::Tensor read;
  if (state)
    read = attend_after(h, batch, *state);
  else if (!batch.cu_seqlens)
    read = attend_padded(h, batch.mask, options.causal);
  else if (is_traced(*batch.cu_seqlens))
    read = attend_packed_traced(h, *batch.cu_seqlens, options.causal);
  else
    read = attend_packed(h, borders_of(*batch.cu_seqlens, x.size(1), "attention"), options.causal);
  return project(read.flatten(2), {w.output})[0];
}

Memory attention_memory(const MixerOptions& options, at::ScalarType dtype) {
  const int64_t width = options.n_embd / options.n_head;
  Memory memory = memory_of_keys_and_values(options.n_head, width, width, dtype);
  memory.layer = "attention, " + rope_words(options);
  return memory;
}

class AttentionMixer final : public TokenMixer {
 public:
  void check(const BackboneOptions& options) const override {
    check_taken(options.mixer, "plain attention", {"bias", "causal", "use_rope", "rope_theta"});
    FEM_CHECK(options.n_embd % (2 * options.n_head) == 0,
              "attention: expected n_embd to be a multiple of twice n_head, got ", options.n_embd, " and ",
              options.n_head);
  }

  std::vector<ParameterSpec> parameters(const BackboneOptions& options, int64_t) const override {
    std::vector<ParameterSpec> specs;
    for (const char* name : {"query", "key", "value", "output"})
      declare_linear(specs, name, options.n_embd, options.n_embd, options.mixer.bias);
    return specs;
  }

  Mix bind(const BackboneOptions& options, int64_t, const std::vector<at::Tensor>& weights) const override {
    return [w = attention_weights(weights, options.mixer.bias), mixer = options.mixer](
               const at::Tensor& x, const Batch& batch, MixerState* state, bool /*training*/) {
      if (!state) return attention(x, w, mixer, batch, nullptr);
      return stream("attention", x, batch, attention_memory(mixer, x.scalar_type()), *state,
                    [&](MixerState& next) { return attention(x, w, mixer, batch, &next); });
    };
  }
};

}  // namespace

const TokenMixer& attention_mixer() {
  static const AttentionMixer mixer;
  return mixer;
}

}  // namespace fem
