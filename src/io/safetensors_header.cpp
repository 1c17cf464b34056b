#include "io/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

std::map<std::string, std::string> parse_metadata(const json& metadata) {
  FEM_CHECK(
      metadata.is_object() && std::all_of(metadata.begin(), metadata.end(), [](auto& v) { return v.is_string(); }),
      kSafetensorsMetadata, " is not an object of strings");
  return metadata.get<std::map<std::string, std::string>>();
}

bool are_unsigned(const json& values) {
  return values.is_array() &&
         std::all_of(values.begin(), values.end(), [](const json& value) { return value.is_number_unsigned(); });
}

SafetensorsEntry parse_entry(const std::string& name, const json& value) {
  const std::string who = "tensor " + json(name).dump();
  FEM_CHECK(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"),
            who, " lacks one of dtype, shape and data_offsets");
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  const auto known = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                  [&](auto& pair) { return dtype == pair.first; });
  FEM_CHECK(known != kSafetensorsDtypes.end(), who, " has the unknown dtype ", dtype.dump());
  FEM_CHECK(are_unsigned(shape), who, " has the shape ", shape.dump(), ", which is not a list of sizes");
  FEM_CHECK(are_unsigned(offsets) && offsets.size() == 2 && offsets[0] <= offsets[1], who, " has data_offsets ",
            offsets.dump(), ", expected [begin, end]");

  // Overflow is judged as if empty dimensions were 1, because torch computes strides that way.
  int64_t bytes = static_cast<int64_t>(c10::elementSize(known->second));
  bool empty = false, overflow = false;
  for (const uint64_t size : shape) {
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(bytes, std::max<uint64_t>(size, 1), &bytes);
  }
  FEM_CHECK(!overflow, who, " has the shape ", shape.dump(), ", which is too large");
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  FEM_CHECK(end - begin == (empty ? 0 : static_cast<uint64_t>(bytes)), who, " occupies ", end - begin,
            " bytes, but its dtype and shape need ", empty ? 0 : bytes);
  return {name, known->second, shape.get<std::vector<int64_t>>(), begin, end};
}

// In file order, each beginning where the one before ended.
std::vector<SafetensorsEntry> parse_entries(const json& header, uint64_t data_bytes) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items())
    if (name != kSafetensorsMetadata) entries.push_back(parse_entry(name, value));
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    FEM_CHECK(entry.end <= data_bytes, "tensor ", json(entry.name).dump(), " ends at byte ", entry.end, " of ",
              data_bytes, ": the file is truncated or its header is wrong");
    FEM_CHECK(entry.begin == position, "tensor ", json(entry.name).dump(), " begins at byte ", entry.begin,
              entry.begin < position ? ", inside the tensor before it, which ends at "
                                     : " and leaves a hole after the tensor before it, which ends at ",
              position);
    position = entry.end;
  }
  FEM_CHECK(position == data_bytes, data_bytes - position, " bytes follow the last tensor");
  return entries;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& text, uint64_t data_bytes) {
  const json header = parse_json(text, "the header");
  FEM_CHECK(header.is_object(), "the header is not a JSON object");
  SafetensorsHeader parsed;
  if (header.contains(kSafetensorsMetadata)) parsed.metadata = parse_metadata(header[kSafetensorsMetadata]);
  parsed.entries = parse_entries(header, data_bytes);
  return parsed;
}

}  // namespace fem
