// Rows of tokens that a state keeps.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>

#include "fem/state.h"

namespace fem {

// Appends the new tokens to a cache and returns all there are.
inline at::Tensor extended(TokenCache& cache, const at::Tensor& rows) {
  cache.append(rows);
  return cache.rows();
}

// The same of which tokens are real: [B, T], after those that the caches held before. Cached only once there is a mask;
// what came before it was real.
inline std::optional<at::Tensor> remember_mask(std::map<std::string, TokenCache>& caches, int64_t before,
                                               const at::Tensor& fresh, const std::optional<at::Tensor>& mask) {
  if (!mask && !caches.count("visible")) return std::nullopt;
  const auto ones = [&](int64_t rows) { return at::ones({fresh.size(0), rows}, fresh.options().dtype(at::kBool)); };
  TokenCache& visible = caches["visible"];
  if (visible.length() < before) visible.append(ones(before));
  return extended(visible, mask ? *mask : ones(fresh.size(1)));
}

}  // namespace fem
