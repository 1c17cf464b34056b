#include "help.h"

#include <sstream>

namespace fem {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNameColumns = 30;

// Where a line goes on below itself: under its last column of text, if it has several, or its first word.
size_t hanging_indent(const std::string& line) {
  const size_t first = line.find_first_not_of(' ');
  const size_t gap = line.substr(0, kColumns / 2 + 10).rfind("  ");
  return gap == std::string::npos || gap < first ? first : gap + 2;
}

// A line that is too long, as several.
std::string wrapped_line(std::string line) {
  std::string text;
  const std::string indent(line.size() > kColumns ? hanging_indent(line) : 0, ' ');
  while (line.size() > kColumns) {
    const size_t space = line.rfind(' ', kColumns);
    if (space == std::string::npos || space <= indent.size()) break;
    text += line.substr(0, space) + "\n";
    line = indent + line.substr(space + 1);
  }
  return text + line;
}

std::string wrapped(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += wrapped_line(line) + "\n";
  return out;
}

}  // namespace

std::string help_entry(const std::string& name, const std::string& meaning) {
  std::string line = "  " + name;
  const bool fits = line.size() + 2 <= kNameColumns;
  if (fits) line.resize(kNameColumns, ' ');
  return wrapped(fits ? line + meaning : line + "\n" + std::string(kNameColumns, ' ') + meaning);
}

std::string Help::make_description(const CLI::App* app) const { return wrapped(Formatter::make_description(app)); }

std::string Help::make_option(const CLI::Option* option, bool is_positional) const {
  return help_entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string Help::make_subcommand(const CLI::App* command) const {
  return help_entry(command->get_name(), command->get_description());
}

std::string Help::make_footer(const CLI::App* app) const { return wrapped(Formatter::make_footer(app)); }

}  // namespace fem
