#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fem {

// A Python script of ours and the interpreter that has matplotlib.
struct PlotCommand {
  std::filesystem::path python, script;
};

// Where this program was built from: its scripts/ and configs/.
std::filesystem::path source_tree();

// scripts/<name> of the source tree and the active virtual environment's Python, else the tree's own .venv.
PlotCommand plot_command(const std::string& name);

// Draws; false if the interpreter or the script is not there or fails.
bool draw(const PlotCommand& command, const std::vector<std::string>& arguments);

}  // namespace fem
