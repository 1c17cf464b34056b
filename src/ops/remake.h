// Inputs that an operator does not keep for its backward but has made again, by the node of the graph that made them:
// from what that node keeps itself, so that they cost no memory between forward and backward. modulate and layer_norm
// are such makers where their argument `recompute` says so.
#pragma once

#include <torch/csrc/autograd/function.h>

namespace fem {

// Whether the node that made x makes it again. Second derivatives with respect to x itself are then not to be had;
// those of all it was made from are.
bool is_remade(const at::Tensor& x);

at::Tensor remake(torch::autograd::Node& maker);
// Of [B, T, H, *] these heads only, by modulate's node.
at::Tensor remake_heads(torch::autograd::Node& maker, int64_t first, int64_t count);

}  // namespace fem
