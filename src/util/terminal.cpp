#include "util/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <streambuf>

namespace fem {
namespace {

constexpr unsigned char kLatin = 0xC2;  // begins U+0080 ... U+00BF, of which the first 32 are control characters

std::string escaped(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "\\x%02x", byte);
  return text;
}

bool is_control(unsigned char byte) { return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F; }

// Bytes that follow the first one of a character; -1: none begins so.
int bytes_after(unsigned char first) {
  if (first < 0x80) return 0;
  if (first >= 0xC2 && first <= 0xDF) return 1;
  if (first >= 0xE0 && first <= 0xEF) return 2;
  return first >= 0xF0 && first <= 0xF4 ? 3 : -1;
}

}  // namespace

std::string Printable::operator()(std::string_view bytes) {
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    const bool goes_on = missing_ > 0 && (byte & 0xC0) == 0x80, held = std::exchange(held_, false);
    if (goes_on) {
      --missing_;
      text += !held ? std::string(1, each) : byte < 0xA0 ? escaped(byte) : std::string{static_cast<char>(kLatin), each};
      continue;
    }
    if (held) text += escaped(kLatin);
    missing_ = std::max(bytes_after(byte), 0);
    held_ = byte == kLatin;
    if (!held_) text += is_control(byte) || bytes_after(byte) < 0 ? escaped(byte) : std::string(1, each);
  }
  return text;
}

class PrintableTerminal::Stream : public std::streambuf {
 public:
  explicit Stream(std::ostream& stream) : stream_(stream), terminal_(stream.rdbuf(this)) {}
  ~Stream() override { stream_.rdbuf(terminal_); }

 protected:
  int overflow(int byte) override {
    if (byte == traits_type::eof()) return 0;
    const char one = traits_type::to_char_type(byte);
    return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    const std::string text = printable_({bytes, static_cast<size_t>(size)});
    const auto length = static_cast<std::streamsize>(text.size());
    return terminal_->sputn(text.data(), length) == length ? size : 0;
  }
  int sync() override { return terminal_->pubsync(); }

 private:
  std::ostream& stream_;
  std::streambuf* const terminal_;
  Printable printable_;
};

PrintableTerminal::PrintableTerminal() {
  if (::isatty(STDOUT_FILENO)) out_ = std::make_unique<Stream>(std::cout);
  if (::isatty(STDERR_FILENO)) error_ = std::make_unique<Stream>(std::cerr);
}

PrintableTerminal::~PrintableTerminal() = default;

}  // namespace fem
