#include "fem/text/streamed_text.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"
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

// The bytes at the start of text that one U+FFFD stands for, if they are no character: all that began one, else one.
size_t broken_size(std::string_view text) {
  size_t size = std::min<size_t>(text.size(), 3);
  while (size > 1 && !may_become_character(text.substr(0, size))) --size;
  return size;
}

// Takes the characters off the front of bytes, up to a last one that may not be whole yet.
std::string take_characters(std::string& bytes) {
  std::string text;
  std::string_view left = bytes;
  while (true) {
    const size_t good = utf8_prefix(left);
    text += left.substr(0, good);
    left.remove_prefix(good);
    if (left.empty() || may_become_character(left)) break;
    text += kReplacement;
    left.remove_prefix(broken_size(left));
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

CertainText::CertainText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    FEM_CHECK(!stop.empty(), "generate: expected stop strings that are not empty, got an empty one");
}

std::string CertainText::add(std::string_view bytes) {
  if (stopped_) return {};
  bytes_ += bytes;
  text_ += take_characters(bytes_);
  return release();
}

std::string CertainText::finish() {
  if (stopped_) return {};
  if (!std::exchange(bytes_, {}).empty()) text_ += kReplacement;
  const std::string certain = release();  // the last character may have made a stop string
  return certain + std::exchange(text_, {});
}

std::string CertainText::release() {
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

StreamedText::StreamedText(TokenizerPtr tokenizer, int64_t last, std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), last_(last), text_(std::move(stops)) {}

std::string StreamedText::add(int64_t token) {
  const std::string bytes = tokenizer_->continuation(last_, token);
  last_ = token;
  return text_.add(bytes);
}

}  // namespace fem
