// Text that others wrote, on a terminal: control characters would move its cursor, recolour it or answer for the user.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fem {

// Control characters but line ends and tabs as \x1b, and bytes that are not UTF-8 alike; a character may come in two
// parts.
class Printable {
 public:
  std::string operator()(std::string_view bytes);

 private:
  int missing_ = 0;    // bytes of the character that has begun
  bool held_ = false;  // it begins as U+0080 ... U+009F do, and nothing of it is shown yet
};

// While one lives, what is written to std::cout and std::cerr is made printable wherever that is a terminal; into
// files and pipes bytes go as they are.
class PrintableTerminal {
 public:
  PrintableTerminal();
  ~PrintableTerminal();
  PrintableTerminal(const PrintableTerminal&) = delete;
  PrintableTerminal& operator=(const PrintableTerminal&) = delete;

 private:
  class Stream;
  std::unique_ptr<Stream> out_, error_;
};

}  // namespace fem
