#include "bench/machine.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "fem/version.h"

namespace fem::bench {
namespace {

namespace fs = std::filesystem;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "32K", "8M"
int64_t size_in_bytes(const std::string& size) {
  const int64_t unit = size.back() == 'K' ? 1 << 10 : size.back() == 'M' ? 1 << 20 : 1;
  return std::stoll(size) * unit;
}

std::vector<std::pair<std::string, int64_t>> data_caches() {
  std::vector<std::pair<std::string, int64_t>> caches;
  const fs::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (int i = 0; fs::exists(folder / ("index" + std::to_string(i))); ++i) {
    const fs::path cache = folder / ("index" + std::to_string(i));
    const std::string type = first_word(cache / "type"), size = first_word(cache / "size");
    if (type == "Instruction" || size.empty()) continue;
    std::string name = "L";
    name += first_word(cache / "level");
    if (type == "Data") name += "d";
    caches.emplace_back(name, size_in_bytes(size));
  }
  return caches;
}

}  // namespace

int64_t Machine::largest_cache() const {
  int64_t largest = 0;
  for (const auto& [name, bytes] : caches) largest = std::max(largest, bytes);
  return largest;
}

Machine this_machine() {
  return {cpu_name(), instruction_set(), std::thread::hardware_concurrency(), at::get_num_threads(), data_caches()};
}

nlohmann::ordered_json to_json(const Machine& machine) {
  nlohmann::ordered_json caches = nlohmann::ordered_json::object();
  for (const auto& [name, bytes] : machine.caches) caches[name] = bytes;
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"isa", machine.isa},
          {"threads", machine.threads},
          {"caches", caches}};
}

}  // namespace fem::bench
