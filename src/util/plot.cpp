#include "util/plot.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace fem {

std::filesystem::path source_tree() { return FEM_SOURCE_DIR; }

PlotCommand plot_command(const std::string& name) {
  const std::filesystem::path tree = source_tree();
  const char* active = std::getenv("VIRTUAL_ENV");
  return {(active ? std::filesystem::path(active) : tree / ".venv") / "bin" / "python", tree / "scripts" / name};
}

bool draw(const PlotCommand& command, const std::vector<std::string>& arguments) {
  if (!std::filesystem::exists(command.python) || !std::filesystem::exists(command.script)) return false;
  std::vector<std::string> words{command.python.string(), command.script.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return false;
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace fem
