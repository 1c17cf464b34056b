// Torch's attention, with the log-normaliser that at::scaled_dot_product_attention keeps to itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace fem {

struct Attention {
  at::Tensor mixed;           // [B, H, Tq, W] sum_i p_t(i) x_i
  at::Tensor log_normalizer;  // [B, H, Tq] in the dtype of computation
};

// Which keys the queries see: all of them, those i <= t (triangle, Tq = Tk), or where bias is 0 and not -inf.
struct Sight {
  bool triangle = false;
  at::Tensor bias = {};  // [B or 1, 1, Tq, Tk] in the dtype of the query, or undefined
};

Sight sight_of(const at::Tensor& visible, at::ScalarType dtype);  // of a boolean [B or 1, 1, Tq, Tk]

// The width to which queries, keys and mixed values are padded: then every fused kernel takes them.
int64_t attention_width(int64_t key_width, int64_t mixed_width);

// Whether torch has a fused kernel for such inputs: one that never makes Tq x Tk numbers.
bool is_fused(const at::Tensor& query, const at::Tensor& key, const Sight& sight, double scale);

// p = softmax(scale q k^T) mixes x. query, key and x are [B, H, T, W], of one dtype; every query sees a key.
// Without a fused kernel: by products, which do make Tq x Tk numbers.
Attention attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& x, const Sight& sight, double scale);

}  // namespace fem
