#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fem {

// A Python script of ours with its arguments, and the interpreter that should have what it imports.
struct PlotCommand {
  std::string python;
  std::filesystem::path script;
  std::vector<std::string> arguments;

  std::string by_hand() const;  // what to type where it could not be drawn
};

// The script <name> of shared_files(), and the interpreter $FEM_PYTHON (pip's command sets it), else that of the active
// virtual environment, else of the build's own, else python3.
PlotCommand plot_command(const std::string& name, const std::vector<std::string>& arguments);

// Draws; false if the interpreter or the script is not there or fails.
bool draw(const PlotCommand& command);

// The same; what it complained of last, nothing if it drew.
std::optional<std::string> failure_of(const PlotCommand& command);

}  // namespace fem
