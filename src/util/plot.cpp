#include "util/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "util/shared_files.h"
#include "util/shell.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

std::string interpreter() {
  if (const char* chosen = std::getenv("FEM_PYTHON")) return chosen;
  const char* active = std::getenv("VIRTUAL_ENV");
  const fs::path python = (active ? fs::path(active) : shared_files() / ".venv") / "bin" / "python";
  return fs::exists(python) ? python.string() : "python3";
}

}  // namespace

PlotCommand plot_command(const std::string& name, const std::vector<std::string>& arguments) {
  return {interpreter(), shared_files() / "scripts" / name, arguments};
}

std::string PlotCommand::by_hand() const {
  std::vector<std::string> words{"python", script.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return "No picture was drawn; with a Python that has matplotlib: " + shell_command(words);
}

bool draw(const PlotCommand& command) {
  if (!fs::exists(command.script)) return false;
  std::vector<std::string> words{command.python, command.script.string()};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // What it complains of is for those who run it by hand.
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &quiet, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (failed) return false;
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace fem
