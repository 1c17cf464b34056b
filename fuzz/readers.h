// The readers of outside bytes, each as a function that is given bytes. One that refuses them throws a c10::Error with
// its sentence; whatever else leaves it is a finding.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fem::fuzz {

struct Reader {
  const char* name;  // of its folder in fuzz/corpus too
  void (*read)(const std::string& bytes);
};

const std::vector<Reader>& configuration_readers();
const std::vector<Reader>& model_readers();
const std::vector<Reader>& run_readers();

// The bytes as a file of that name in a folder of this process.
std::filesystem::path file_of(const std::string& bytes, const std::string& name);

}  // namespace fem::fuzz
