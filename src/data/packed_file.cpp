#include "data/packed_file.h"

#include <cerrno>
#include <cstring>

#include "util/check.h"

namespace fem {

// zlib reads plain files as they are.
PackedFile::PackedFile(const std::filesystem::path& path, std::string whose)
    : name_(path.string()), whose_(std::move(whose)), buffer_(1 << 16) {
  std::error_code none;
  errno = 0;
  const bool folder = std::filesystem::is_directory(path, none);
  file_ = folder ? nullptr : gzopen(name_.c_str(), "rb");
  FEM_CHECK(file_, whose_, ": ", name_,
            " cannot be read: ", folder ? "it is a folder" : std::strerror(errno ? errno : EIO));
}

PackedFile::~PackedFile() { gzclose_r(file_); }

std::string_view PackedFile::read() {
  const int count = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int error = Z_OK;
  const char* const what = gzerror(file_, &error);
  FEM_CHECK(count >= 0 && (error == Z_OK || error == Z_STREAM_END), whose_, ": ", name_,
            " is damaged, or its end is missing (gzip: ", what, ")");
  return {buffer_.data(), static_cast<size_t>(count)};
}

}  // namespace fem
