// Help as it is shown: every line within 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fem {

// "  --steps N=100               Training steps": a name and, beside it or below, what it means.
std::string help_entry(const std::string& name, const std::string& meaning);

class Help : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* app) const override;
};

}  // namespace fem
