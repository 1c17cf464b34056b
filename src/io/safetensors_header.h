// The JSON header of a safetensors file.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fem/io/safetensors.h"

namespace fem {

constexpr const char* kSafetensorsMetadata = "__metadata__";

inline constexpr std::array kSafetensorsDtypes{std::pair{"F64", at::kDouble},    std::pair{"F32", at::kFloat},
                                               std::pair{"BF16", at::kBFloat16}, std::pair{"F16", at::kHalf},
                                               std::pair{"I64", at::kLong},      std::pair{"I32", at::kInt},
                                               std::pair{"I16", at::kShort},     std::pair{"I8", at::kChar},
                                               std::pair{"U8", at::kByte},       std::pair{"BOOL", at::kBool}};

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in file order, each beginning where the one before ended
  std::map<std::string, std::string> metadata;
};

// Checks everything about a header whose tensors should fill data_bytes; throws a clause without the file's name.
SafetensorsHeader parse_safetensors_header(const std::string& text, uint64_t data_bytes);

// load_safetensors for somebody who may refuse a file by its header, before any tensor is made; errors begin with who.
Safetensors load_safetensors(const std::filesystem::path& path, const std::string& who,
                             const std::function<void(const SafetensorsHeader&)>& check);

}  // namespace fem
