#pragma once

#include <string>
#include <string_view>

namespace fem {

// A word as a shell reads it back: in single quotes, which bash, zsh and fish read alike, where it needs any.
inline std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return quoted + "'";
}

// A command to type: its words, parted by spaces.
template <typename Words>
std::string shell_command(const Words& words) {
  std::string command;
  for (const auto& word : words) command += (command.empty() ? "" : " ") + shell_word(word);
  return command;
}

}  // namespace fem
