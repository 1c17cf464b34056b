#include "ops/softmax_read/attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "ops/operator.h"

namespace fem {
namespace {

using at::SDPBackend;

constexpr int64_t kAlignment = 8;       // of widths, in numbers
constexpr int64_t kBiasAlignment = 16;  // of a bias' rows

int64_t rounded_up(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

OptionalTensor bias_of(const Sight& sight) { return if_defined(sight.bias); }

// What at::scaled_dot_product_attention would choose. Torch knows no choice for some devices.
SDPBackend chosen_backend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& x, const Sight& sight,
                          double scale) {
  static const auto choice = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_fused_sdp_choice", "");
  if (!choice.hasKernelForDispatchKey(query.options().computeDispatchKey())) return SDPBackend::math;
  return static_cast<SDPBackend>(
      at::_fused_sdp_choice(query, key, x, bias_of(sight), /*dropout_p=*/0, sight.triangle, scale));
}

// Kernels round a log-normaliser's tokens up to their tiles, or give it a last dimension of 1.
Attention attention_of(const at::Tensor& mixed, const at::Tensor& log_normalizer) {
  return {mixed, log_normalizer.flatten(2).slice(2, 0, mixed.size(2))};
}

Attention attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& x, const Sight& sight,
                             double scale) {
  const auto exact = at::toOpMathType(query.scalar_type());
  at::Tensor scores = at::matmul(query.to(exact) * scale, key.to(exact).transpose(2, 3));
  if (sight.bias.defined()) scores = scores + sight.bias;
  if (sight.triangle)
    scores = scores.masked_fill(at::ones_like(scores[0][0], at::kBool).triu(/*diagonal=*/1), -INFINITY);
  const at::Tensor log_normalizer = scores.detach().logsumexp(-1);
  return {at::matmul(scores.softmax(-1), x.to(exact)), log_normalizer};
}

}  // namespace

Sight sight_of(const at::Tensor& visible, at::ScalarType dtype) {
  const int64_t keys = visible.size(3);
  const at::Tensor bias =
      at::zeros({visible.size(0), 1, visible.size(2), rounded_up(keys, kBiasAlignment)}, visible.options().dtype(dtype))
          .slice(3, 0, keys);
  bias.masked_fill_(visible.logical_not(), -INFINITY);
  return {false, bias};
}

int64_t attention_width(int64_t key_width, int64_t mixed_width) {
  return rounded_up(std::max(key_width, mixed_width), kAlignment);
}

bool is_fused(const at::Tensor& query, const at::Tensor& key, const Sight& sight, double scale) {
  const SDPBackend backend = chosen_backend(query, key, key, sight, scale);
  return backend != SDPBackend::math && backend != SDPBackend::error;
}

Attention attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& x, const Sight& sight,
                 double scale) {
  const bool triangle = sight.triangle;
  switch (chosen_backend(query, key, x, sight, scale)) {
    case SDPBackend::flash_attention: {
      if (query.is_cpu()) {
        const auto out =
            at::_scaled_dot_product_flash_attention_for_cpu(query, key, x, 0, triangle, bias_of(sight), scale);
        return attention_of(std::get<0>(out), std::get<1>(out));
      }
      const auto out = at::_scaled_dot_product_flash_attention(query, key, x, 0, triangle, false, scale);
      return attention_of(std::get<0>(out), std::get<1>(out));
    }
    case SDPBackend::efficient_attention: {
      OptionalTensor bias = bias_of(sight);
      if (bias) bias = bias->expand({query.size(0), query.size(1), query.size(2), key.size(2)});
      const auto out =
          at::_scaled_dot_product_efficient_attention(query, key, x, bias, /*log_sumexp=*/true, 0, triangle, scale);
      return attention_of(std::get<0>(out), std::get<1>(out));
    }
    case SDPBackend::cudnn_attention: {
      const auto out = at::_scaled_dot_product_cudnn_attention(query, key, x, bias_of(sight), /*log_sumexp=*/true, 0,
                                                               triangle, false, scale);
      return attention_of(std::get<0>(out), std::get<1>(out));
    }
    case SDPBackend::overrideable: {
      const auto out = at::_scaled_dot_product_fused_attention_overrideable(query, key, x, bias_of(sight), 0, triangle,
                                                                            false, scale);
      return attention_of(std::get<0>(out), std::get<1>(out));
    }
    case SDPBackend::math:
    case SDPBackend::error:
      break;
  }
  return attend_by_products(query, key, x, sight, scale);
}

}  // namespace fem
