#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace fem {

inline bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

inline int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !continues_character(byte); });
}

// The bytes of the character at the start of text, 0 if it is none (overlong forms and surrogates are none).
inline size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i)
    if (!continues_character(text[i])) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) > 0x9F;
  const bool too_large = lead == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : size;
}

// Where text stops being UTF-8; its size if it never does.
inline size_t utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const size_t size = character_size(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return at;
}

inline size_t start_of_character(std::string_view text, size_t at) {
  for (int back = 0; back < 3 && at > 0 && at < text.size() && continues_character(text[at]); ++back) --at;
  return at;
}

// How far before its byte `at` a text may be cut.
inline size_t cutting_window(size_t at) { return std::min<size_t>(at / 16, 4096); }

// A good place to cut text near its byte `at`, and not after it: the start of a line close by, else of a character.
inline size_t cut_near(std::string_view text, size_t at) {
  const size_t window = cutting_window(at);
  const size_t line_end = text.substr(at - window, window).rfind('\n');
  if (line_end != std::string_view::npos) return at - window + line_end + 1;
  return start_of_character(text, at);
}

// The same for a text that goes on: before the white space at a line's end close by, else before a space, else at a
// character. So the second part shows whether white space stands before its first word.
inline size_t cut_before_space(std::string_view text, size_t at) {
  const size_t begin = at - cutting_window(at);
  for (const char wanted : {'\n', ' '}) {
    const size_t space = text.substr(begin, at - begin).rfind(wanted);
    if (space == std::string_view::npos) continue;
    const size_t word = text.substr(begin, space).find_last_not_of(" \t\r\n");
    if (word != std::string_view::npos) return begin + word + 1;
  }
  return start_of_character(text, at);
}

}  // namespace fem
