#include "data/idx.h"

#include <ATen/ATen.h>

#include <cstring>

#include "data/packed_file.h"
#include "util/check.h"
#include "util/grouped.h"

namespace fem {
namespace {

constexpr int64_t kMostIdxBytes = int64_t{1} << 36;

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path, int64_t dimensions) {
  constexpr char kUnsignedBytes = 8;
  PackedFile file(path, "idx");
  const std::string name = path.string();
  std::string bytes;
  const size_t header = 4 + 4 * static_cast<size_t>(dimensions);
  while (bytes.size() < header) {
    const std::string_view more = file.read();
    FEM_CHECK(!more.empty(), "idx: ", name, " has ", bytes.size(), " bytes, too few for an IDX file");
    bytes += more;
  }
  FEM_CHECK(bytes[0] == 0 && bytes[1] == 0 && bytes[2] == kUnsignedBytes && bytes[3] == dimensions, "idx: ", name,
            " is not an IDX file of unsigned bytes in ", dimensions, " dimensions");
  std::vector<int64_t> sizes;
  int64_t count = 1;
  for (int64_t i = 0; i < dimensions; ++i) {
    uint32_t size = 0;
    for (int64_t j = 0; j < 4; ++j) size = size << 8 | static_cast<uint8_t>(bytes[4 + 4 * i + j]);
    FEM_CHECK(size >= 1, "idx: ", name, " holds nothing: dimension ", i + 1, " is 0");
    FEM_CHECK(size <= kMostIdxBytes / count, "idx: ", name, " declares more than ", grouped(kMostIdxBytes), " bytes");
    sizes.push_back(size);
    count *= size;
  }
  bytes.erase(0, header);
  // Memory grows with what is there, not with what is declared.
  while (static_cast<int64_t>(bytes.size()) <= count) {
    const std::string_view more = file.read();
    if (more.empty()) break;
    bytes += more;
  }
  FEM_CHECK(static_cast<int64_t>(bytes.size()) == count, "idx: ", name, " declares ", grouped(count), " bytes, but ",
            static_cast<int64_t>(bytes.size()) < count ? "has " + grouped(static_cast<int64_t>(bytes.size()))
                                                       : std::string("has more"));
  const at::Tensor read = at::empty(sizes, at::kByte);
  std::memcpy(read.data_ptr<uint8_t>(), bytes.data(), bytes.size());
  return read;
}

}  // namespace fem
