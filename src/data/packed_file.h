#pragma once

#include <zlib.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fem {

// A file, packed by gzip or not, unpacked while it is read. Throws one sentence if it cannot be read or is damaged.
class PackedFile {
 public:
  // whose: what errors begin with, "csv" for "csv: a.csv.gz cannot be read ...".
  PackedFile(const std::filesystem::path& path, std::string whose);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  std::string_view read();  // the next bytes, none at the end

 private:
  const std::string name_, whose_;
  gzFile file_;
  std::vector<char> buffer_;
};

}  // namespace fem
