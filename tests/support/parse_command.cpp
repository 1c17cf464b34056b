// Reads command lines as fem does and does nothing of what they say: a JSON list of words a line in, and out what is
// wrong with it, as JSON; "" if nothing is.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"

static std::string error_of(const std::vector<std::string>& words) {
  int status = 0;
  const auto app = fem::make_app(status);
  // Runs when all is read and checked, before any command does its work.
  app->parse_complete_callback([] { throw CLI::Success(); });
  try {
    app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream help, text;
    return app->exit(error, help, text) == 0 ? "" : text.str();
  }
  return "parsed, but not stopped before the work";
}

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << nlohmann::json(error_of(nlohmann::json::parse(line))).dump() << "\n";
}
