// The past of attention, whoever reads it: keys and values, one row a token.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>

#include "priors/memory.h"
#include "priors/remember.h"

namespace fem {

// key, value: heads and the width of each.
inline Memory memory_of_keys_and_values(std::vector<int64_t> key, std::vector<int64_t> value, at::ScalarType dtype) {
  Memory memory;
  memory.caches = {{"key", std::move(key), dtype}, {"value", std::move(value), dtype}};
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
  KeysAndValues all;
  all.mask = remember_mask(caches, caches["key"].length(), fresh.key, fresh.mask);
  all.key = extended(caches["key"], fresh.key);
  all.value = extended(caches["value"], fresh.value);
  return all;
}

}  // namespace fem
