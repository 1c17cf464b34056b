#include "io/jsonl.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "io/json.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct Line {
  int64_t number = 0;
  uint64_t begin = 0;  // its place in the file
  std::string text = {};
  bool ended = false;  // by a line end; the last one of a file may have none
};

void for_each_line(const fs::path& path, const std::function<void(const Line&)>& visit) {
  if (!fs::exists(path)) return;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const auto expect_readable = [&](bool fine) {
    FEM_CHECK(fine, "cannot read ", path.string(), ": ", std::strerror(errno ? errno : EIO));
  };
  expect_readable(file.is_open());
  for (Line line{.number = 1}; std::getline(file, line.text); ++line.number) {
    line.ended = !file.eof();
    visit(line);
    line.begin += line.text.size() + 1;
  }
  expect_readable(!file.bad());
}

bool ends_inside_a_line(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

// The object of a line, none if it is not a whole one.
std::optional<Json> object_in(const std::string& text) {
  std::optional<Json> content = json_if_whole<Json>(text);
  return content && content->is_object() ? std::move(content) : std::nullopt;
}

// Makes a file end with a whole line: what a crash cut short is removed, a line end that an editor left out is added.
void end_last_line(const fs::path& path) {
  if (!ends_inside_a_line(path)) return;
  Line last;
  for_each_line(path, [&](const Line& line) { last = line; });
  if (object_in(last.text))
    std::ofstream(path, std::ios::binary | std::ios::app) << '\n';
  else
    fs::resize_file(path, last.begin);
}

}  // namespace

void append_jsonl(const fs::path& path, const Json& line) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  end_last_line(path);
  const std::string text = line.dump() + '\n';
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.flush();
  FEM_CHECK(file.good(), "cannot append to ", path.string(), ": ", std::strerror(errno ? errno : EIO));
}

void expect_appendable(const fs::path& path, const std::string& option) {
  errno = 0;
  FEM_CHECK(std::ofstream(path, std::ios::binary | std::ios::app).good(), option,
            ": expected a file that can be written, got ", path.string(), ": ", std::strerror(errno ? errno : EIO));
}

std::vector<Json> read_jsonl(const fs::path& path) {
  std::vector<Json> lines;
  for_each_line(path, [&](const Line& line) {
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) return;
    if (std::optional<Json> content = object_in(line.text)) return lines.push_back(std::move(*content));
    FEM_CHECK(!line.ended, path.string(), ", line ", line.number, ": expected a JSON object, got \"",
              line.text.substr(0, 60), "\"; remove that line, or the file to begin anew");
  });
  return lines;
}

}  // namespace fem
