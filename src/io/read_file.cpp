#include "io/read_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "util/check.h"

namespace fem {

std::string read_file(const std::filesystem::path& path, const std::string& whose, uint64_t most) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  FEM_CHECK(file.good(), whose, ": ", path.string(), " cannot be read: ", std::strerror(errno ? errno : EIO));
  std::error_code error;
  FEM_CHECK(std::filesystem::is_regular_file(path, error), whose, ": ", path.string(),
            " cannot be read: it is not a file");
  const uint64_t size = std::filesystem::file_size(path, error);
  FEM_CHECK(!error && size <= most, whose, ": ", path.string(), " has ", size, " bytes, expected at most ", most);
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  FEM_CHECK(file.gcount() == static_cast<std::streamsize>(size), whose, ": ", path.string(),
            " became shorter while it was read; start again");
  return bytes;
}

}  // namespace fem
