#include "io/toml.h"

// The library's compiled part: header-only it takes a minute.
#define TOML_HEADER_ONLY 0
#define TOML_SHARED_LIB 1
#include <toml++/toml.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/read_file.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

// The end of the text in quotes that begins at `at`: past the closing ones, or where the line or the file ends.
size_t end_of_quoted(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"', long_one = text.substr(at, 3) == std::string(3, quote);
  const std::string closing(long_one ? 3 : 1, quote);
  for (at += closing.size(); at < text.size(); ++at) {
    if (text[at] == '\n' && !long_one) return at;
    if (text.substr(at, closing.size()) == closing) return at + closing.size();
    if (text[at] == '\\' && escapes) ++at;
  }
  return text.size();
}

// Refuses deep keys and brackets before the library builds them: it bounds brackets alone, at 256, and a key of 66,000
// parts ends the process when the tables it made are destroyed.
void check_depth(std::string_view text, const std::string& whose) {
  int64_t line = 1, parts = 1, brackets = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_quoted(text, at);
      line += std::count(text.begin() + at, text.begin() + end, '\n');
      at = end - 1;
      continue;
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size()) - 1;
    if (c == '\n') ++line;
    if (c == '[' || c == '{') ++brackets;
    if (c == ']' || c == '}') --brackets;
    parts = c == '.' ? parts + 1 : std::string_view("\n=,[]{}").find(c) == std::string_view::npos ? parts : 1;
    FEM_CHECK(parts <= kDeepestToml && brackets <= kDeepestToml, whose, ", line ", line, ": expected at most ",
              kDeepestToml, " levels of keys or of brackets, got more");
  }
}

json json_of(const toml::node& node, const std::string& whose) {
  if (const auto* table = node.as_table()) {
    json out = json::object();
    for (const auto& [key, value] : *table) out[std::string(key.str())] = json_of(value, whose);
    return out;
  }
  if (const auto* array = node.as_array()) {
    json out = json::array();
    for (const toml::node& value : *array) out.push_back(json_of(value, whose));
    return out;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* truth = node.as_boolean()) return truth->get();
  const auto* number = node.as_floating_point();
  FEM_CHECK(number && std::isfinite(number->get()), whose, ", line ", node.source().begin.line,
            ": expected text, finite numbers, true or false, got ", number ? "inf or nan" : "a date");
  return number->get();
}

}  // namespace

json parse_toml(const std::string& text, const std::string& whose) {
  check_depth(text, whose);
  try {
    return json_of(toml::parse(text), whose);
  } catch (const toml::parse_error& error) {
    FEM_CHECK(false, whose, ", line ", error.source().begin.line, ": ", error.description());
  }
}

json read_toml(const std::filesystem::path& path, const std::string& whose) {
  return parse_toml(read_file(path, whose), whose + ": " + path.string());
}

}  // namespace fem
