// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps.
#include "fem/io/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/atomic_file.h"
#include "io/safetensors_header.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian numbers");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // as in the format's own library

at::Tensor read_tensor(std::istream& file, const SafetensorsEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  if (tensor.nbytes() > 0)
    file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  FEM_CHECK(file.good(), "tensor \"", entry.name, "\" cannot be read");
  FEM_CHECK(entry.dtype != at::kBool || !tensor.view(at::kByte).gt(1).any().item<bool>(), "tensor \"", entry.name,
            "\" is BOOL but has bytes other than 0 and 1");
  return tensor;
}

Safetensors read_tensors(const fs::path& path, const std::function<void(const SafetensorsHeader&)>& check) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  FEM_CHECK(!error, "cannot be read: ", error.message());
  std::ifstream file(path, std::ios::binary);
  FEM_CHECK(file.good(), "cannot be opened for reading");
  FEM_CHECK(size >= kLengthBytes, "expected a safetensors file, got ", size, " bytes, too few for a header");

  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), kLengthBytes);
  FEM_CHECK(header_bytes <= std::min(size - kLengthBytes, kLargestHeader),
            "expected a safetensors file, got a header length of ", header_bytes, " bytes in a file of ", size);
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  FEM_CHECK(file.good(), "the header cannot be read");

  SafetensorsHeader header = parse_safetensors_header(text, size - kLengthBytes - header_bytes);
  check(header);
  Safetensors content;
  content.metadata = std::move(header.metadata);
  for (const SafetensorsEntry& entry : header.entries) content.tensors[entry.name] = read_tensor(file, entry);
  return content;
}

const char* dtype_name(const std::string& name, const at::Tensor& tensor) {
  FEM_CHECK(name != kSafetensorsMetadata, "a tensor cannot be named ", kSafetensorsMetadata);
  FEM_CHECK(tensor.defined() && tensor.layout() == at::kStrided, "tensor \"", name, "\" is undefined or not dense");
  const auto known = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                  [&](const auto& pair) { return pair.second == tensor.scalar_type(); });
  FEM_CHECK(known != kSafetensorsDtypes.end(), "tensor \"", name, "\" has the dtype ", tensor.scalar_type(),
            ", which the format does not know: convert it first");
  return known->first;
}

void write_file(const fs::path& path, const Safetensors& content) {
  json header = json::object();
  if (!content.metadata.empty()) header[kSafetensorsMetadata] = content.metadata;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, tensor] : content.tensors) {
    header[name] = {{"dtype", dtype_name(name, tensor)}, {"shape", tensor.sizes().vec()}};
    tensors.emplace_back(name, tensor.detach().to(at::kCPU).contiguous());
  }
  // Wide elements first, so that each tensor is aligned to its elements; by name among equals.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  uint64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name]["data_offsets"] = {position, position + tensor.nbytes()};
    position += tensor.nbytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  write_atomically(path, [&](std::ostream& file) {
    const uint64_t header_bytes = text.size();
    file.write(reinterpret_cast<const char*>(&header_bytes), kLengthBytes);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& [name, tensor] : tensors)
      file.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  });
}

}  // namespace

Safetensors load_safetensors(const fs::path& path) {
  return load_safetensors(path, "load_safetensors", [](const SafetensorsHeader&) {});
}

Safetensors load_safetensors(const fs::path& path, const std::string& who,
                             const std::function<void(const SafetensorsHeader&)>& check) {
  try {
    return read_tensors(path, check);
  } catch (const c10::Error& error) {
    FEM_CHECK(false, who, ": ", path.string(), ": ", error.what_without_backtrace());
  }
}

void save_safetensors(const fs::path& path, const Safetensors& content) {
  try {
    write_file(path, content);
  } catch (const c10::Error& error) {
    FEM_CHECK(false, "save_safetensors: ", path.string(), ": ", error.what_without_backtrace());
  } catch (const json::exception& error) {
    FEM_CHECK(false, "save_safetensors: ", path.string(), ": names and metadata must be UTF-8: ", error.what());
  }
}

}  // namespace fem
