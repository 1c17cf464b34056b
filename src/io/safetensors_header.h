// The JSON header of a safetensors file.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace fem
