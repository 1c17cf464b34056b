#include "io/jsonl.h"

#include <fstream>
#include <string>

#include "util/check.h"

namespace fem {
namespace {

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

void append_jsonl(const std::filesystem::path& path, const Json& line) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::string text = line.dump() + '\n';
  if (ends_inside_a_line(path)) text.insert(0, 1, '\n');
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.flush();
  FEM_CHECK(file.good(), "append_jsonl: expected to append to ", path.string(), ", but writing failed");
}

std::vector<Json> read_jsonl(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    Json line = Json::parse(text, nullptr, false);
    if (line.is_object()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace fem
