// The past of attention, whoever reads it: keys and values, one row a token.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>

#include "priors/memory.h"

namespace fem {

inline Memory memory_of_keys_and_values(int64_t heads, int64_t key_width, int64_t value_width, at::ScalarType dtype) {
  Memory memory;
  memory.caches = {{"key", {heads, key_width}, dtype}, {"value", {heads, value_width}, dtype}};
  return memory;
}

struct KeysAndValues {
  at::Tensor key, value;           // [B, T, H, *]
  std::optional<at::Tensor> mask;  // [B, T] true = a real token
};

// Drops rows that no later token sees, once they are as many as those that are seen: a windowed cache stays bounded.
inline void forget(TokenCache& cache, int64_t window) {
  if (cache.length() / 2 < window) return;
  TokenCache recent;
  recent.append(cache.rows().slice(1, cache.length() - window));
  cache = recent;
}

// Appends the new tokens to the caches and returns all there are.
inline KeysAndValues remember(std::map<std::string, TokenCache>& caches, const KeysAndValues& fresh,
                              std::optional<int64_t> window = std::nullopt) {
  if (window)
    for (auto& [name, cache] : caches) forget(cache, *window);
  const auto extend = [](TokenCache& cache, const at::Tensor& rows) {
    cache.append(rows);
    return cache.rows();
  };
  KeysAndValues all;
  // The mask is cached only once there is one; what came before it was visible.
  if (fresh.mask || caches.count("visible")) {
    const auto ones = [&](int64_t rows) {
      return at::ones({fresh.key.size(0), rows}, fresh.key.options().dtype(at::kBool));
    };
    TokenCache& visible = caches["visible"];
    if (visible.length() < caches["key"].length()) visible.append(ones(caches["key"].length()));
    all.mask = extend(visible, fresh.mask ? *fresh.mask : ones(fresh.key.size(1)));
  }
  all.key = extend(caches["key"], fresh.key);
  all.value = extend(caches["value"], fresh.value);
  return all;
}

}  // namespace fem
