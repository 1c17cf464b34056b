#include "fem/language_model.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "fem/ops/project.h"
#include "fem/ops/rms_norm.h"
#include "fem/ops/swiglu.h"
#include "models/attention.h"
#include "models/recompute.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

using Init = ParameterSpec::Init;

constexpr double kInitialDeviation = 0.02;
// Logits of so many tokens are in memory at once: 32 MB in float32.
constexpr int64_t kLogitsAtOnce = 1 << 23;

void check(const LanguageModelOptions& o) {
  for (const auto& [name, value] : {std::pair{"vocab_size", o.vocab_size},
                                    {"n_embd", o.n_embd},
                                    {"n_head", o.n_head},
                                    {"n_layer", o.n_layer},
                                    {"mlp_width", o.mlp_width}})
    FEM_CHECK(value >= 1, "language model: expected ", name, " of at least 1, got ", value);
  FEM_CHECK(o.norm_eps > 0, "language model: expected a positive norm_eps, got ", o.norm_eps);
  FEM_CHECK(o.mixer.n_embd == o.n_embd && o.mixer.n_head == o.n_head,
            "language model: expected the mixer's n_embd and n_head to be the model's, ", o.n_embd, " and ", o.n_head,
            ", got ", o.mixer.n_embd, " and ", o.mixer.n_head);
  FEM_CHECK(o.mixer.causal, "language model: expected a causal mixer, got mixer.causal = false");
  if (o.block_mixer == BlockMixer::kAttention)
    check_attention(o.mixer);
  else
    sizes_of(o.mixer);
}

LanguageModelOptions completed(LanguageModelOptions options) {
  if (options.mixer.n_embd == 0) options.mixer.n_embd = options.n_embd;
  if (options.mixer.n_head == 0) options.mixer.n_head = options.n_head;
  check(options);
  return options;
}

ParameterSpec matrix(std::string name, int64_t out, int64_t in) {
  return {std::move(name), {out, in}, Init::kNormal, kInitialDeviation};
}

ParameterSpec norm(std::string name, int64_t width) { return {std::move(name), {width}, Init::kConstant, 1.0}; }

struct MlpSpecs {
  ParameterSpec gate, up, down;
};

MlpSpecs mlp_specs(const LanguageModelOptions& o) {
  return {matrix("mlp.gate.weight", o.mlp_width, o.n_embd), matrix("mlp.up.weight", o.mlp_width, o.n_embd),
          matrix("mlp.down.weight", o.n_embd, o.mlp_width)};
}

// Packed sequences that are all as long are a batch, whose kernels need not mind borders: [1, n L] as [n, L].
std::optional<at::Tensor> as_batch(const at::Tensor& tokens, const Batch& batch) {
  if (!batch.cu_seqlens || batch.mask || batch.cu_seqlens->numel() < 2) return std::nullopt;
  const int64_t rows = batch.cu_seqlens->numel() - 1, length = tokens.size(1) / rows;
  const at::Tensor regular = at::arange(rows + 1, batch.cu_seqlens->options()) * length;
  const bool fits = tokens.size(0) == 1 && length > 0 && rows * length == tokens.size(1);
  return fits && batch.cu_seqlens->equal(regular) ? std::optional(tokens.view({rows, length})) : std::nullopt;
}

void check_layers(const LanguageModelState& state, size_t layers) {
  FEM_CHECK(state.layers.size() == layers, "language model: expected a state of ", layers, " layers, got one of ",
            state.layers.size(), "; it belongs to another model");
  for (const MixerState& layer : state.layers)
    FEM_CHECK(layer.tokens == state.layers[0].tokens,
              "language model: expected a state whose layers have all seen the same tokens, got one of ",
              state.layers[0].tokens, " and one of ", layer.tokens, "; start from a new one");
}

// bfloat16 as float32: a sum over the vocabulary needs the digits.
at::Tensor with_wide_sums(const at::Tensor& logits) { return logits.to(at::toOpMathType(logits.scalar_type())); }

}  // namespace

struct LanguageModelImpl::Block : torch::nn::Module {
  explicit Block(const LanguageModelOptions& o) {
    const auto add = [&](const ParameterSpec& spec) { return register_dotted(*this, spec.name, initial_value(spec)); };
    mixer_norm = add(norm("mixer_norm.weight", o.n_embd));
    if (o.block_mixer == BlockMixer::kAttention)
      attention = register_module("mixer", std::make_shared<AttentionImpl>(o.mixer));
    else
      mixer = register_module("mixer", std::make_shared<FreeEnergyMixerImpl>(o.mixer));
    mlp_norm = add(norm("mlp_norm.weight", o.n_embd));
    const MlpSpecs specs = mlp_specs(o);
    gate = add(specs.gate);
    up = add(specs.up);
    down = add(specs.down);
  }

  at::Tensor mix(const at::Tensor& x, const Batch& batch, MixerState* state) const {
    if (attention) return attention->forward(x, batch, state);
    return state ? mixer->forward(x, *state, batch) : mixer->forward(x, batch);
  }

  at::Tensor mlp(const at::Tensor& x) const {
    const std::vector<at::Tensor> both = project(x, {gate, up});
    return project(swiglu(both[0], both[1]), {down})[0];
  }

  at::Tensor mixer_norm, mlp_norm, gate, up, down;
  std::shared_ptr<FreeEnergyMixerImpl> mixer;
  std::shared_ptr<AttentionImpl> attention;
};

std::vector<ParameterSpec> language_model_parameters(const LanguageModelOptions& options) {
  const LanguageModelOptions o = completed(options);
  std::vector<ParameterSpec> specs{matrix("embedding.weight", o.vocab_size, o.n_embd)};
  const std::vector<ParameterSpec> mixer =
      o.block_mixer == BlockMixer::kAttention ? attention_parameters(o.mixer) : mixer_parameters(o.mixer);
  const MlpSpecs mlp = mlp_specs(o);
  for (int64_t i = 0; i < o.n_layer; ++i) {
    const std::string prefix = "blocks." + std::to_string(i) + ".";
    const auto add = [&](ParameterSpec spec) {
      spec.name = prefix + spec.name;
      specs.push_back(std::move(spec));
    };
    add(norm("mixer_norm.weight", o.n_embd));
    for (ParameterSpec spec : mixer) {
      spec.name = "mixer." + spec.name;
      add(std::move(spec));
    }
    add(norm("mlp_norm.weight", o.n_embd));
    for (const ParameterSpec& spec : {mlp.gate, mlp.up, mlp.down}) add(spec);
  }
  specs.push_back(norm("norm.weight", o.n_embd));
  if (!o.tie_embeddings) specs.push_back(matrix("head.weight", o.vocab_size, o.n_embd));
  return specs;
}

int64_t parameter_count(const std::vector<ParameterSpec>& parameters) {
  int64_t count = 0;
  for (const ParameterSpec& spec : parameters) count += c10::multiply_integers(spec.shape);
  return count;
}

LanguageModelState LanguageModelState::select(const at::Tensor& batch_index) const {
  LanguageModelState selected;
  for (const MixerState& layer : layers) selected.layers.push_back(layer.select(batch_index));
  return selected;
}

LanguageModelImpl::LanguageModelImpl(const LanguageModelOptions& given) : options(completed(given)) {
  const auto add = [&](const ParameterSpec& spec) { return register_dotted(*this, spec.name, initial_value(spec)); };
  embedding_ = add(matrix("embedding.weight", options.vocab_size, options.n_embd));
  const auto blocks = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (int64_t i = 0; i < options.n_layer; ++i)
    blocks_.push_back(blocks->register_module(std::to_string(i), std::make_shared<Block>(options)));
  norm_ = add(norm("norm.weight", options.n_embd));
  head_ = options.tie_embeddings ? embedding_ : add(matrix("head.weight", options.vocab_size, options.n_embd));
}

at::Tensor LanguageModelImpl::forward(const at::Tensor& tokens, const Batch& batch) {
  return head(hidden(tokens, batch));
}

at::Tensor LanguageModelImpl::forward(const at::Tensor& tokens, LanguageModelState& state, const Batch& batch) {
  return head(hidden(tokens, batch, &state));
}

at::Tensor LanguageModelImpl::embed(const at::Tensor& tokens) const {
  FEM_CHECK(tokens.dim() == 2 && (tokens.scalar_type() == at::kLong || tokens.scalar_type() == at::kInt),
            "language model: expected tokens as int64 or int32 [B, T], got ", tokens.scalar_type(), " ",
            shape_of(tokens));
  if (tokens.numel() > 0) {
    const int64_t lowest = tokens.min().item<int64_t>(), highest = tokens.max().item<int64_t>();
    FEM_CHECK(lowest >= 0 && highest < options.vocab_size, "language model: expected tokens from 0 to ",
              options.vocab_size - 1, ", got ", lowest < 0 ? lowest : highest,
              "; is it another tokenizer than the model's?");
  }
  return at::embedding(embedding_, tokens);
}

at::Tensor LanguageModelImpl::mixed(const Block& block, const at::Tensor& x, const Batch& batch,
                                    MixerState* state) const {
  return x + block.mix(rms_norm(x, block.mixer_norm, options.norm_eps), batch, state);
}

at::Tensor LanguageModelImpl::thought(const Block& block, const at::Tensor& x) const {
  return x + block.mlp(rms_norm(x, block.mlp_norm, options.norm_eps));
}

at::Tensor LanguageModelImpl::hidden(const at::Tensor& tokens, const Batch& batch, LanguageModelState* state) {
  if (!state)
    if (const auto rows = as_batch(tokens, batch)) return hidden(*rows).view({1, -1, options.n_embd});
  LanguageModelState next;  // cheap, and a call that throws leaves the state as it was
  if (state) {
    next = *state;
    if (next.layers.empty()) next.layers.resize(blocks_.size());
    check_layers(next, blocks_.size());
  }
  at::Tensor x = embed(tokens);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto whole = [block = blocks_[i], past = state ? &next.layers[i] : nullptr, batch,
                        this](const at::Tensor& in) { return thought(*block, mixed(*block, in, batch, past)); };
    x = recompute && !state ? recomputed(whole, x) : whole(x);
  }
  if (state) *state = std::move(next);
  return rms_norm(x, norm_, options.norm_eps);
}

at::Tensor LanguageModelImpl::head(const at::Tensor& hidden) { return project(hidden, {head_})[0]; }

at::Tensor LanguageModelImpl::surprise(const at::Tensor& tokens, const at::Tensor& targets, const Batch& batch) {
  FEM_CHECK(targets.sizes() == tokens.sizes(), "language model: expected a target for every token, ", shape_of(tokens),
            ", got ", shape_of(targets));
  const at::Tensor rows = hidden(tokens, batch).flatten(0, 1), wanted = targets.flatten();
  const int64_t count = rows.size(0), at_once = std::max<int64_t>(kLogitsAtOnce / options.vocab_size, 1);
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < count; first += at_once) {
    const at::Tensor part = wanted.narrow(0, first, std::min(at_once, count - first));
    const auto nats = [part, this](const at::Tensor& h) {
      return at::cross_entropy_loss(with_wide_sums(head(h)), part, {}, at::Reduction::None);
    };
    const at::Tensor h = rows.narrow(0, first, part.size(0));
    parts.push_back(count > at_once ? recomputed(nats, h) : nats(h));
  }
  return at::cat(parts).view(targets.sizes());
}

std::vector<std::pair<std::string, at::Tensor>> LanguageModelImpl::trace(const at::Tensor& tokens, const Batch& batch) {
  std::vector<std::pair<std::string, at::Tensor>> made{{"embedding", embed(tokens)}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::string name = "blocks." + std::to_string(i);
    made.emplace_back(name + ".mixer", mixed(*blocks_[i], made.back().second, batch, nullptr));
    made.emplace_back(name + ".mlp", thought(*blocks_[i], made.back().second));
  }
  made.emplace_back("logits", head(rms_norm(made.back().second, norm_, options.norm_eps)));
  return made;
}

}  // namespace fem
