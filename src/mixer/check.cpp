#include "mixer/check.h"

#include <ATen/ATen.h>

#include "mixer/conditioner.h"
#include "mixer/parts.h"
#include "ops/checks.h"
#include "ops/sequences.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kTheirOptions = "; weights belong to the options they were made for";

void check_weight(const char* name, const at::Tensor& weight, c10::IntArrayRef shape, const at::Tensor& like) {
  FEM_CHECK(weight.defined(), "mix: expected weights with ", name, ", got none", kTheirOptions);
  FEM_CHECK(weight.sym_sizes() == c10::fromIntArrayRefSlow(shape) && weight.scalar_type() == like.scalar_type() &&
                weight.device() == like.device(),
            "mix: expected ", name, " as ", like.scalar_type(), " ", shape, " on ", like.device(), ", got ",
            weight.scalar_type(), " ", shape_of(weight), " on ", weight.device(), kTheirOptions);
}

void check_layer(const char* name, const LinearWeights& layer, c10::IntArrayRef shape, bool bias,
                 const at::Tensor& like) {
  check_weight(name, layer.weight, shape, like);
  const int64_t rows = bias ? shape[0] : 0;
  FEM_CHECK(layer.bias.defined() == bias &&
                (!bias || (layer.bias.dim() == 1 && layer.bias.sym_size(0) == rows &&
                           layer.bias.scalar_type() == like.scalar_type() && layer.bias.device() == like.device())),
            "mix: expected ", name, bias ? " with a bias of " : " without a bias", bias ? std::to_string(rows) : "",
            ", got ", layer.bias.defined() ? "one of shape " + shape_of(layer.bias) : "none", kTheirOptions);
}

void check_conditioner(const ConditionerWeights& w, const MixerOptions& o, int64_t hidden, int64_t outputs,
                       const at::Tensor& like) {
  visit_conditioner_layers(o, hidden, w, [&](const char* name, c10::IntArrayRef shape, const LinearWeights& layer) {
    check_layer(name, layer, shape, o.bias, like);
  });
  FEM_CHECK(o.conv_norm_first || !w.norm.weight.defined(), "mix: expected a conditioner without norm, got one with it",
            kTheirOptions);
  check_weight("out_proj", w.out_proj, {hidden, outputs}, like);
}

}  // namespace

void check_batch(const char* who, const at::Tensor& x, const Batch& batch) {
  const auto tokens = x.sym_size(1);
  if (batch.mask) {
    const at::Tensor& mask = *batch.mask;
    FEM_CHECK(mask.scalar_type() == at::kBool && mask.dim() == 2 && mask.sym_size(0) == x.sym_size(0) &&
                  mask.sym_size(1) == tokens && mask.device() == x.device(),
              who, ": expected mask as bool [B=", x.sym_size(0), ", T=", tokens, "] on ", x.device(),
              " (true = a real token), got ", mask.scalar_type(), " ", shape_of(mask), " on ", mask.device());
  }
  if (batch.cu_seqlens) {
    const at::Tensor& borders = *batch.cu_seqlens;
    FEM_CHECK(!batch.mask, who, ": expected mask or cu_seqlens, got both; pack the real tokens alone");
    FEM_CHECK(borders.device() == x.device(), who, ": expected cu_seqlens on ", x.device(), " like x, got it on ",
              borders.device());
    FEM_CHECK(x.sym_size(0) == 1, who,
              ": cu_seqlens needs all sequences packed in one row: expected x of shape [1, T, D], got ", shape_of(x));
    check_borders(who, borders, tokens);
    // An assertion in the graph, so that tracing needs no values.
    if (!is_plain(borders))
      at::_assert_async(borders.diff().ge(0).all().logical_and(borders[0] == 0).logical_and(borders[-1] == tokens),
                        std::string(who) + ": expected cu_seqlens to run from 0 to T without decreasing");
  }
}

void check_call(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options, const Batch& batch,
                const MixerState* state) {
  const at::Tensor &x = in.x, &weight = weights.value.weight;
  FEM_CHECK(weight.defined(), "mix: expected weights with W_v, got none", kTheirOptions);
  check_float("mix", weight);
  FEM_CHECK(x.dim() == 3 && x.sym_size(2) == options.n_embd, "mix: expected x of shape [B, T, D=", options.n_embd,
            "], got ", shape_of(x));
  FEM_CHECK(x.scalar_type() == weight.scalar_type() && x.device() == weight.device(), "mix: expected x as ",
            weight.scalar_type(), " on ", weight.device(), " like the weights, got ", x.scalar_type(), " on ",
            x.device(), "; convert either with to()");
  if (in.query.defined()) {
    FEM_CHECK(has_queries(options), "mix: prior ", spelled(options.prior_type), " in dialect ",
              spelled(options.dialect), " makes no queries, of another input least of all; leave the query out");
    check_like("mix", "query", in.query, "x", x, x.sym_sizes());
  }
  check_batch("mix", x, batch);
  FEM_CHECK(!state || options.causal,
            "mix: a state needs causal=true, because an encoder's early tokens see later ones; "
            "call forward(x) on the whole sequence");
}

void check_weights(const MixerWeights& w, const std::vector<AppliedPart>& parts, const MixerOptions& o,
                   const MixerSizes& sizes) {
  const at::Tensor& like = w.value.weight;
  int64_t conditioned = 0;
  for (const AppliedPart& part : parts) {
    check_layer(part.name->text, part.weights, part.shape, part.bias, like);
    if (part.conditioned != Conditioned::kNot) conditioned += part.shape[0];
  }
  check_weight("_beta_param", w.beta_param, {sizes.value}, like);
  if (!o.use_conv) return;
  const int64_t hidden = conditioner_width(o, sizes);
  check_conditioner(w.forward, o, hidden, conditioned, like);
  if (o.conv_bidirectional) check_conditioner(w.backward, o, hidden, conditioned, like);
}

}  // namespace fem
