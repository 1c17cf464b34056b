#include "models/backbone.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "fem/ops/rms_norm.h"
#include "mixer/check.h"
#include "models/recompute.h"
#include "models/traced.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

// Packed sequences that are all as long are a batch, whose kernels need not mind borders: [1, n L, D] as [n, L, D].
std::optional<at::Tensor> as_batch(const at::Tensor& x, const Batch& batch) {
  if (!batch.cu_seqlens || is_traced(*batch.cu_seqlens)) return std::nullopt;
  const int64_t rows = batch.cu_seqlens->numel() - 1, length = x.size(1) / rows;
  const at::Tensor regular = at::arange(rows + 1, batch.cu_seqlens->options()) * length;
  const bool fits = length > 0 && rows * length == x.size(1);
  return fits && batch.cu_seqlens->equal(regular) ? std::optional(x.view({rows, length, -1})) : std::nullopt;
}

void check_layers(const BackboneState& state, size_t layers) {
  FEM_CHECK(state.layers.size() == layers, "backbone: expected a state of ", layers, " layers, got one of ",
            state.layers.size(), "; it belongs to another model");
  for (const MixerState& layer : state.layers)
    FEM_CHECK(layer.tokens == state.layers[0].tokens,
              "backbone: expected a state whose layers have all seen the same tokens, got one of ",
              state.layers[0].tokens, " and one of ", layer.tokens, "; start from a new one");
}

std::vector<at::Tensor> tensors_of(const Stream& stream) {
  return stream.velocity.defined() ? std::vector{stream.x, stream.velocity} : std::vector{stream.x};
}

Stream stream_of(const std::vector<at::Tensor>& tensors) {
  return {tensors[0], tensors.size() > 1 ? tensors[1] : at::Tensor()};
}

}  // namespace

at::Tensor found(const Trace& trace, const std::string& name) {
  const auto made = std::find_if(trace.begin(), trace.end(), [&](const auto& one) { return one.first == name; });
  return made != trace.end() ? made->second : at::Tensor();
}

void check_backbone(const BackboneOptions& o, const char* who) {
  for (const auto& [name, value] :
       {std::pair{"n_embd", o.n_embd}, {"n_head", o.n_head}, {"n_layer", o.n_layer}, {"mlp_width", o.mlp_width}})
    FEM_CHECK(value >= 1, who, ": expected ", name, " of at least 1, got ", value);
  for (const auto& [name, value, most] : {std::tuple{"n_embd", o.n_embd, kLargestWidth},
                                          {"n_head", o.n_head, kLargestWidth},
                                          {"n_layer", o.n_layer, kMostLayers},
                                          {"mlp_width", o.mlp_width, kLargestWidth}})
    FEM_CHECK(value <= most, who, ": expected ", name, " of at most ", most, ", got ", value);
  FEM_CHECK(o.norm_eps > 0 && std::isfinite(o.norm_eps), who, ": expected a positive norm_eps, got ", o.norm_eps);
  FEM_CHECK(o.dropout >= 0 && o.dropout < 1, who, ": expected dropout in [0, 1), got ", o.dropout);
  FEM_CHECK(o.mixer.n_embd == o.n_embd && o.mixer.n_head == o.n_head, who,
            ": expected the mixer's n_embd and n_head to be the model's, ", o.n_embd, " and ", o.n_head, ", got ",
            o.mixer.n_embd, " and ", o.mixer.n_head);
  const TokenMixer& mixer = token_mixer_of(o.block_mixer);
  FEM_CHECK(mixer.has_curvature() || (!o.curvature && o.rho == 0), who, ": block_mixer ", spelled(o.block_mixer),
            " has no curvature and no rho; remove them, or set block_mixer to \"newton\" or \"newton_light\"");
  mixer.check(o);
  FEM_CHECK(!residual_of(o).queries_apart() || mixer.queries_apart(o), who, ": residual = \"", spelled(o.residual),
            "\" asks for queries alone ahead of x, and block_mixer = \"", spelled(o.block_mixer),
            "\" with these options makes no queries of an input of their own; take residual = \"nesterov\", which asks "
            "for everything ahead");
}

std::vector<ParameterSpec> backbone_parameters(const BackboneOptions& options) {
  const BackboneOptions o = completed(options, "backbone");
  std::vector<ParameterSpec> specs;
  for (int64_t layer = 0; layer < o.n_layer; ++layer)
    for (ParameterSpec& spec : block_parameters(o, layer)) {
      spec.name = "blocks." + std::to_string(layer) + "." + spec.name;
      specs.push_back(std::move(spec));
    }
  specs.push_back(norm_spec("norm.weight", o.n_embd));
  return specs;
}

BackboneState BackboneState::select(const at::Tensor& batch_index) const {
  BackboneState selected;
  for (const MixerState& layer : layers) selected.layers.push_back(layer.select(batch_index));
  return selected;
}

BoundBackbone::BoundBackbone(const BackboneOptions& options, const std::vector<at::Tensor>& weights)
    : options_(options), norm_(weights.back()) {
  const auto of_a_block = static_cast<int64_t>(weights.size() - 1) / options.n_layer;
  for (int64_t layer = 0; layer < options.n_layer; ++layer) {
    const auto first = weights.begin() + layer * of_a_block;
    blocks_.emplace_back(options, layer, std::vector<at::Tensor>(first, first + of_a_block));
  }
}

void BoundBackbone::check(const at::Tensor& x, const Call& call) const {
  FEM_CHECK(x.dim() == 3 && x.sym_size(2) == options_.n_embd,
            "backbone: expected x of shape [B, T, D=", options_.n_embd, "], got ", shape_of(x));
  FEM_CHECK(x.scalar_type() == norm_.scalar_type() && x.device() == norm_.device(), "backbone: expected x as ",
            norm_.scalar_type(), " on ", norm_.device(), " like the weights, got ", x.scalar_type(), " on ", x.device(),
            "; convert either with to()");
  check_batch("backbone", x, call.batch);
  if (!call.state) return;
  FEM_CHECK(options_.mixer.causal,
            "backbone: a state needs mixer.causal = true, because an encoder's early tokens see later ones; call it on "
            "the whole sequence");
  FEM_CHECK(token_mixer_of(options_.block_mixer).streams(), "backbone: ", spelled(options_.block_mixer),
            " keeps no state: call it on the whole sequence");
}

at::Tensor BoundBackbone::run(const at::Tensor& x, const Call& call) const {
  Stream stream{x, {}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    MixerState* past = call.state ? &call.state->layers[i] : nullptr;
    if (call.trace) {
      const std::string name = "blocks." + std::to_string(i);
      const MixerInput asked = block.asked(stream);
      call.trace->emplace_back(name + ".mixer_norm", asked.x);
      if (asked.query.defined()) call.trace->emplace_back(name + ".mixer_query", asked.query);
      stream = block.mix(stream, call.batch, past, call.training);
      call.trace->emplace_back(name + ".mixer", stream.x);
      stream = block.mlp(stream, call.training);
      call.trace->emplace_back(name + ".mlp", stream.x);
    } else if (call.recompute && !call.state) {
      // By value: backward comes when this call is over.
      const auto whole = [block, batch = call.batch, training = call.training](const std::vector<at::Tensor>& in) {
        return tensors_of(block.mlp(block.mix(stream_of(in), batch, nullptr, training), training));
      };
      stream = stream_of(recomputed(whole, tensors_of(stream)));
    } else {
      stream = block.mlp(block.mix(stream, call.batch, past, call.training), call.training);
    }
  }
  return stream.x;
}

at::Tensor BoundBackbone::norm(const at::Tensor& x) const { return rms_norm(x, norm_, options_.norm_eps); }

at::Tensor BoundBackbone::operator()(const at::Tensor& x, const Call& call) const {
  const at::Tensor y = norm(blocks(x, call));
  if (call.trace) call.trace->emplace_back("norm", y);
  return y;
}

at::Tensor BoundBackbone::blocks(const at::Tensor& x, const Call& call) const {
  check(x, call);
  if (!call.state) {
    if (const auto rows = as_batch(x, call.batch)) {
      Call plain = call;
      plain.batch = {};
      return blocks(*rows, plain).view(x.sizes());
    }
    return run(x, call);
  }
  BackboneState next = *call.state;  // cheap, and a call that throws leaves the state as it was
  if (next.layers.empty()) next.layers.resize(blocks_.size());
  check_layers(next, blocks_.size());
  Call continued = call;
  continued.state = &next;
  const at::Tensor y = run(x, continued);
  *call.state = std::move(next);
  return y;
}

BackboneImpl::BackboneImpl(const BackboneOptions& given)
    : options(completed(given, "backbone")),
      bound_(std::make_shared<BoundBackbone>(options, register_parameters(*this, backbone_parameters(options)))) {}

at::Tensor BackboneImpl::forward(const at::Tensor& x, const Batch& batch) {
  return (*bound_)(x, {.batch = batch, .training = is_training(), .recompute = recompute});
}

at::Tensor BackboneImpl::forward(const at::Tensor& x, BackboneState& state, const Batch& batch) {
  return (*bound_)(x, {.batch = batch, .state = &state, .training = is_training()});
}

Trace BackboneImpl::trace(const at::Tensor& x, const Batch& batch) {
  Trace made;
  (*bound_)(x, {.batch = batch, .training = is_training(), .trace = &made});
  return made;
}

}  // namespace fem
