#include "data/documents.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/json.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/checksum.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPartBytes = 2 << 20;
constexpr uint64_t kLongestCharacter = 4;

bool is_jsonl(const fs::path& path) { return path.extension() == ".jsonl"; }

std::string read_bytes(const fs::path& path, uint64_t begin, uint64_t end) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  FEM_CHECK(file.good(), "corpus: ", path.string(), " cannot be read: ", std::strerror(errno ? errno : EIO));
  std::string bytes(end - begin, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  FEM_CHECK(file.good(), "corpus: ", path.string(), " became shorter while it was read; start again");
  return bytes;
}

// The next part of a file: to its end, or cut before a line's end; the lines of a .jsonl stay whole whatever they take.
std::string read_next(const TextFile& file, uint64_t begin) {
  for (uint64_t size = kPartBytes;; size *= 2) {
    std::string text = read_bytes(file.path, begin, std::min(begin + size + kLongestCharacter, file.bytes));
    if (begin + text.size() == file.bytes) return text;
    const size_t cut = is_jsonl(file.path) ? text.rfind('\n') + 1 : cut_before_space(text, size);
    text.resize(cut);
    if (cut > 0) return text;
  }
}

// None if the file is not text and was not named by the user.
std::optional<std::vector<TextPart>> parts_of(const TextFile& file, Checksum& checksum) {
  std::vector<TextPart> parts;
  bool has_text = false;
  int64_t line = 1;
  for (uint64_t begin = 0; begin < file.bytes;) {
    const std::string text = read_next(file, begin);
    const size_t bad = std::min(utf8_prefix(text), text.find('\0'));
    if (bad < text.size() && !file.named) return std::nullopt;
    FEM_CHECK(bad >= text.size(), "corpus: ", file.path.string(), " is not UTF-8 text: it has the byte ",
              static_cast<int>(static_cast<unsigned char>(text[bad])), " at position ", begin + bad);
    checksum.add(text);
    parts.push_back({file.path, begin, begin + text.size(), line, begin == 0});
    has_text = has_text || text.find_first_not_of(" \t\r\n") != std::string::npos;
    line += std::count(text.begin(), text.end(), '\n');
    begin += text.size();
  }
  FEM_CHECK(has_text || !file.named, "corpus: ", file.path.string(), " is empty, expected a file with text");
  return has_text ? parts : std::vector<TextPart>();
}

std::pair<TextPart, TextPart> cut_part(const TextPart& part, uint64_t at) {
  const std::string text = read_bytes(part.path, part.begin, part.end);
  const bool lines = is_jsonl(part.path);
  const size_t cut = lines ? std::string_view(text).substr(0, at).rfind('\n') + 1 : cut_near(text, at);
  TextPart before = part, after = part;
  before.end = after.begin = part.begin + cut;
  after.line += std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
  return {before, after};
}

}  // namespace

TextParts cut_into_parts(const std::vector<TextFile>& files) {
  TextParts text;
  for (const TextFile& file : files) {
    Checksum checksum;
    const auto parts = parts_of(file, checksum);
    text.skipped += !parts;
    if (!parts || parts->empty()) continue;
    text.parts.insert(text.parts.end(), parts->begin(), parts->end());
    text.sources.push_back({file.name, (is_jsonl(file.path) ? "jsonl " : "text ") + checksum.text()});
  }
  return text;
}

std::pair<std::vector<TextPart>, std::vector<TextPart>> split_parts(const std::vector<TextPart>& parts,
                                                                    double fraction) {
  uint64_t left = 0;  // bytes that still go before the split
  for (const TextPart& part : parts) left += part.bytes();
  left -= static_cast<uint64_t>(std::llround(static_cast<double>(left) * fraction));
  std::vector<TextPart> first, second;
  for (const TextPart& part : parts) {
    if (left >= part.bytes()) {
      first.push_back(part);
      left -= part.bytes();
      continue;
    }
    const auto [before, after] = left > 0 ? cut_part(part, left) : std::pair(TextPart(), part);
    if (before.bytes() > 0) first.push_back(before);
    second.push_back(after);
    left = 0;
  }
  if (!second.empty()) second.front().begins_document = true;
  return {first, second};
}

void for_each_document(const TextPart& part, const std::function<void(std::string_view text, bool begins)>& read) {
  const std::string text = read_bytes(part.path, part.begin, part.end);
  if (!is_jsonl(part.path)) {
    read(text, part.begins_document);
    return;
  }
  int64_t number = part.line;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = "corpus: " + part.path.string() + " line " + std::to_string(number);
    const auto document = parse_json(line, place);
    FEM_CHECK(document.is_object() && document.contains("text") && document["text"].is_string(), place,
              ": expected a JSON object with a \"text\", got ", line.substr(0, 60));
    const auto& content = document["text"].get_ref<const std::string&>();
    if (!content.empty()) read(content, true);
  }
}

}  // namespace fem
