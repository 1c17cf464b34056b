// Checksums of bytes: XXH128, which finds accidents, at the speed of memory. It is no defence against intent.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fem {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::string_view bytes);
  std::string text() const;  // 32 digits, those of xxh128sum

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace fem
