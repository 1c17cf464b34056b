#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace fem {

// A TensorBoard event file of scalars: records of a protocol buffer with checksums.
class EventFile {
 public:
  // Creates folder/events.out.tfevents.<seconds>.<host>.<process>.
  explicit EventFile(const std::filesystem::path& folder);

  void scalar(const std::string& tag, int64_t step, double value);
  void flush();

 private:
  void record(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace fem
