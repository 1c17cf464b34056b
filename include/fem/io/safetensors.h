#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace fem {

struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads a .safetensors file. Throws one clear sentence for anything malformed: no holes, overlaps, duplicate keys or
// out-of-bounds ranges are accepted.
Safetensors load_safetensors(const std::filesystem::path& path);

// Writes to a temporary name beside path, syncs and renames: path holds the old file or the whole new one.
void save_safetensors(const std::filesystem::path& path, const Safetensors& content);

}  // namespace fem
