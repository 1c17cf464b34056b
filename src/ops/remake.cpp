#include "ops/remake.h"

#include <ATen/ATen.h>

#include "ops/autograd.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/modulate/modulate.h"
#include "util/check.h"
#include "util/width.h"

namespace fem {
namespace {

template <typename Op>
using NodeOf = torch::autograd::CppNode<Differentiable<Op>>;

// Of both, `recompute` is the last number.
template <typename Op>
bool recomputes(torch::autograd::Node* node) {
  const auto* maker = dynamic_cast<NodeOf<Op>*>(node);
  return maker && maker->ctx_.saved_data.at("numbers").toListRef().back().toBool();
}

}  // namespace

bool is_remade(const at::Tensor& x) {
  torch::autograd::Node* node = x.grad_fn().get();
  return node && (recomputes<ModulateOp>(node) || recomputes<LayerNormOp>(node));
}

at::Tensor remake(torch::autograd::Node& maker) {
  if (const auto* node = dynamic_cast<NodeOf<ModulateOp>*>(&maker))
    return call<ModulateOp>(Differentiable<ModulateOp>::kept_in(&node->ctx_).in).y;
  const auto* node = dynamic_cast<NodeOf<LayerNormOp>*>(&maker);
  FEM_CHECK(node, "backward: ", maker.name(), " cannot make its output again");
  return call<LayerNormOp>(Differentiable<LayerNormOp>::kept_in(&node->ctx_).in).y;
}

at::Tensor remake_heads(torch::autograd::Node& maker, int64_t first, int64_t count) {
  const auto* node = dynamic_cast<NodeOf<ModulateOp>*>(&maker);
  FEM_CHECK(node, "backward: ", maker.name(), " has no heads to make again");
  ModulateOp::Inputs in = Differentiable<ModulateOp>::kept_in(&node->ctx_).in;
  const int64_t width = width_of(in.x);
  in.x = in.x.narrow(2, first, count);
  if (in.weight) in.weight = in.weight->narrow(1, first * width, count * width);
  if (in.limit) in.limit = in.limit->narrow(0, first, count);
  return call<ModulateOp>(in).y;
}

}  // namespace fem
