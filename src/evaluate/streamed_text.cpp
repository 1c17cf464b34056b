#include "evaluate/streamed_text.h"

#include <algorithm>
#include <utility>

#include "data/utf8.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";

// Are more bytes enough to make a character of these?
bool may_become_character(std::string_view bytes) {
  for (const char next : {'\x80', '\xa0'})
    for (size_t more = 1; more <= 3; ++more)
      if (character_size(std::string(bytes) + std::string(more, next)) == bytes.size() + more) return true;
  return false;
}

// Takes the characters off the front of bytes, up to a last one that may not be whole yet.
std::string take_characters(std::string& bytes) {
  std::string text;
  std::string_view left = bytes;
  while (!left.empty()) {
    const size_t good = utf8_prefix(left);
    text += left.substr(0, good);
    left.remove_prefix(good);
    if (left.empty() || may_become_character(left)) break;
    text += kReplacement;
    left.remove_prefix(1);
    while (!left.empty() && continues_character(left.front())) left.remove_prefix(1);
  }
  bytes = std::string(left);
  return text;
}

// How many bytes at the end of text may be the start of stop.
size_t started(std::string_view text, std::string_view stop) {
  size_t size = std::min(text.size(), stop.size() - 1);
  while (size > 0 && !text.ends_with(stop.substr(0, size))) --size;
  return size;
}

}  // namespace

StreamedText::StreamedText(TokenizerPtr tokenizer, int64_t last, std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), last_(last), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) FEM_CHECK(!stop.empty(), "generate: expected a stop string, got an empty one");
}

std::string StreamedText::add(int64_t token) {
  // After another token, because a tokenizer may drop the space before a first word.
  bytes_ += tokenizer_->decode({last_, token}).substr(tokenizer_->decode({last_}).size());
  last_ = token;
  text_ += take_characters(bytes_);
  return release();
}

std::string StreamedText::finish() {
  if (!bytes_.empty() && !stopped_) text_ += kReplacement;
  bytes_.clear();
  return std::exchange(text_, {});
}

std::string StreamedText::release() {
  size_t end = std::string::npos, held = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, text_.find(stop));
    held = std::max(held, started(text_, stop));
  }
  stopped_ = end != std::string::npos;
  std::string certain = text_.substr(0, stopped_ ? end : text_.size() - held);
  text_.erase(0, stopped_ ? text_.size() : certain.size());
  return certain;
}

}  // namespace fem
