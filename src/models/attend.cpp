// What continues a state is read by softmax_read: torch's kernel has no past, and of few queries its bits depend on the
// number of threads.
#include "models/attend.h"

#include <ATen/ATen.h>

#include <cmath>

#include "fem/inspect.h"
#include "fem/ops/modulate.h"
#include "fem/ops/softmax_read.h"
#include "mixer/check.h"
#include "mixer/look.h"
#include "mixer/positions.h"
#include "models/packed.h"
#include "models/traced.h"
#include "nn/linear.h"
#include "nn/parameters.h"
#include "ops/sequences.h"
#include "priors/chosen.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {
namespace {

// Reads one map after the other.
template <typename ReadMap>
at::Tensor every_map(const Heads& h, const ReadMap& read) {
  const int64_t heads = size_of(h.value, 2), maps = size_of(h.query, 2) / heads;
  if (maps == 1) return read(h);
  std::vector<at::Tensor> reads;
  for (int64_t map = 0; map < maps; ++map)
    reads.push_back(read({h.query.narrow(2, map * heads, heads), h.key.narrow(2, map * heads, heads), h.value}));
  return at::cat(reads, 2);
}

// visible: [.., Tq, Tk] true where a query may look, besides what causal says.
at::Tensor attend_to(const Heads& all, const std::optional<at::Tensor>& visible, bool causal) {
  return every_map(all, [&](const Heads& h) {
    // The fused kernel wants one width: zeros change no score.
    const int64_t width = size_of(h.query, 3), missing = size_of(h.value, 3) - width;
    const auto widened = [&](const at::Tensor& rows) {
      return missing ? at::constant_pad_nd(rows, {0, missing}) : rows;
    };
    return at::scaled_dot_product_attention(widened(h.query).transpose(1, 2), widened(h.key).transpose(1, 2),
                                            h.value.transpose(1, 2), visible, 0.0, causal,
                                            1 / std::sqrt(static_cast<double>(width)))
        .transpose(1, 2);
  });
}

// Torch's attention knows no borders.
at::Tensor attend_packed(const Heads& h, const std::vector<int64_t>& borders, bool causal) {
  const std::vector<at::Tensor> reads = every_length(borders, [&](const auto& batch_of) {
    return attend_to({batch_of(h.query), batch_of(h.key), batch_of(h.value)}, {}, causal);
  });
  return reads.empty() ? every_map(h, [](const Heads& map) { return map.value; }) : at::cat(reads, 1);
}

// The same where a graph is made and the borders have no values yet.
at::Tensor attend_packed_traced(const Heads& h, const at::Tensor& cu_seqlens, bool causal) {
  const at::Tensor token = at::arange(h.query.sym_size(1), cu_seqlens.options());
  const at::Tensor sequence = at::bucketize(token, cu_seqlens, /*out_int32=*/false, /*right=*/true);
  const at::Tensor together = sequence.unsqueeze(1) == sequence;
  return attend_to(h, causal ? together.tril() : together, /*causal=*/false);
}

// Rows of a batch, with padding if there is any. A padded token is no position and nobody sees it.
at::Tensor attend_padded(const Heads& h, const std::optional<at::Tensor>& mask, bool causal) {
  if (!mask) return attend_to(h, {}, causal);
  const c10::SymInt length = h.query.sym_size(1);
  const auto bools = h.query.options().dtype(at::kBool);
  const at::Tensor all = at::ones_symint({length, length}, bools);
  // A padded query sees itself, so that no row is empty: its output is nobody's.
  const at::Tensor visible = (causal ? all.tril() : all)
                                 .logical_and(mask->unsqueeze(1).unsqueeze(1))
                                 .logical_or(at::eye_symint(length, length, bools));
  return attend_to(h, visible, /*causal=*/false);
}

// The same after the tokens of a state, which remembers these as well.
at::Tensor attend_after(const Heads& h, const Batch& batch, MixerState& state) {
  const KeysAndValues seen = keys_and_values(h, batch, &state);
  if (state.tokens == 0) return attend_padded(h, batch.mask, /*causal=*/true);
  return every_map({h.query, seen.key, seen.value}, [&](const Heads& map) {
    return softmax_read(map.query, map.key, map.value, std::nullopt, {.key_mask = seen.mask}).mean;
  });
}

}  // namespace

void declare_attention(std::vector<ParameterSpec>& specs, const MixerOptions& options) {
  for (const char* name : {"query", "key", "value", "output"})
    declare_linear(specs, name, options.n_embd, options.n_embd, options.bias);
}

AttentionWeights attention_weights(const std::vector<at::Tensor>& weights, const MixerOptions& options) {
  auto next = weights.begin();
  const auto linear = [&] {
    const at::Tensor weight = *next++;
    return LinearWeights{weight, options.bias ? *next++ : at::Tensor()};
  };
  const LinearWeights query = linear(), key = linear(), value = linear();
  return {query, key, value, linear()};
}

Heads heads_of(const MixerInput& in, const AttentionWeights& w, const MixerOptions& options, int64_t maps,
               const Batch& batch, const MixerState* state) {
  std::vector<at::Tensor> projected;
  if (in.query.defined()) {
    projected = project(in.x, {w.key, w.value});
    projected.insert(projected.begin(), project(in.query, {w.query})[0]);
  } else {
    projected = project(in.x, {w.query, w.key, w.value});
  }
  const int64_t width = options.n_embd / options.n_head / maps;
  AfterModulation rotated;
  if (options.rotates())
    rotated.rotation = rotation_of(positions_of(in.x, batch, state).index, width, options.rope_theta);
  const auto turned = [&](size_t index) { return by_head(projected[index], maps * options.n_head, {}, rotated); };
  return {turned(0), turned(1), by_head(projected[2], options.n_head)};
}

KeysAndValues keys_and_values(const Heads& h, const Batch& batch, MixerState* state) {
  const KeysAndValues fresh{h.key, h.value, batch.mask};
  return state ? remember(state->caches, fresh) : fresh;
}

QueryAndKey OneMapMixer::queries_and_keys(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                                          const MixerInput& in) const {
  const Heads h = heads_of(in, attention_weights(weights, options.mixer), options.mixer, /*maps=*/1, Batch(), nullptr);
  return {h.query, h.key};
}

Inspection OneMapMixer::inspect(const BackboneOptions& options, const std::vector<at::Tensor>& weights,
                                const MixerInput& in, const Batch& batch, const std::vector<int64_t>& positions) const {
  const at::NoGradGuard no_gradients;
  check_batch("inspect", in.x, batch);
  const at::Tensor chosen = chosen_tokens("inspect", positions, in.x);
  const auto exact = [](const at::Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; };
  std::vector<at::Tensor> wide;
  for (const at::Tensor& weight : weights) wide.push_back(exact(weight));
  const Heads h = heads_of({exact(in.x), exact(in.query)}, attention_weights(wide, options.mixer), options.mixer,
                           /*maps=*/1, batch, nullptr);
  const at::Tensor hidden = seen_by(chosen, in.x.size(1), options.mixer, batch).logical_not();
  const at::Tensor scores = chosen_products({h.query, h.key}, chosen) / std::sqrt(static_cast<double>(h.key.size(3)));
  Inspection looked =
      look({scores.masked_fill(hidden.unsqueeze(2), -INFINITY).unsqueeze(3), h.value, std::nullopt, {}, {}});
  looked.capped = at::zeros_like(looked.beta);
  if (options.mixer.causal && !batch.mask && !batch.cu_seqlens) add_energy(looked, h.query, h.key, chosen);
  return looked;
}

Memory attention_memory(const std::string& who, const MixerOptions& options, int64_t value_width,
                        at::ScalarType dtype) {
  const int64_t heads = options.n_head, width = options.n_embd / heads;
  Memory memory = memory_of_keys_and_values({heads, width}, {heads, value_width}, dtype);
  memory.layer = who + ", " + rope_words(options);
  return memory;
}

void check_attention_options(const BackboneOptions& options, const char* who) {
  check_taken(options.mixer, who, {"bias", "causal", "use_rope", "rope_theta"});
  FEM_CHECK(options.n_embd % (2 * options.n_head) == 0, who, ": expected n_embd to be a multiple of twice n_head, got ",
            options.n_embd, " and ", options.n_head);
}

std::vector<ParameterSpec> curved_attention_parameters(const MixerOptions& options) {
  std::vector<ParameterSpec> specs;
  declare_attention(specs, options);
  specs.push_back({"curvature_scale", {options.n_head}, ParameterSpec::Init::kConstant, 0.0});
  return specs;
}

at::Tensor curvature_scale(const at::Tensor& c, const Heads& h) {
  return (c / std::sqrt(static_cast<double>(size_of(h.key, 3)))).to(h.query.scalar_type());
}

at::Tensor attend(const Heads& h, const Batch& batch, bool causal, MixerState* state, const char* who) {
  if (state) return attend_after(h, batch, *state);
  if (!batch.cu_seqlens) return attend_padded(h, batch.mask, causal);
  if (is_traced(*batch.cu_seqlens)) return attend_packed_traced(h, *batch.cu_seqlens, causal);
  return attend_packed(h, borders_of(*batch.cu_seqlens, h.query.size(1), who), causal);
}

}  // namespace fem
