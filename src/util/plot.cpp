#include "util/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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

bool draw(const PlotCommand& command) { return !failure_of(command); }

std::optional<std::string> failure_of(const PlotCommand& command) {
  if (!fs::exists(command.script)) return command.script.string() + " is not there";
  std::vector<std::string> words{command.python, command.script.string()};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "there is no pipe left to hear of errors";
  posix_spawn_file_actions_t heard;
  posix_spawn_file_actions_init(&heard);
  posix_spawn_file_actions_adddup2(&heard, ends[1], STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &heard, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&heard);
  close(ends[1]);
  std::string complaints;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(ends[0], bytes, sizeof bytes)) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) complaints.append(bytes, static_cast<size_t>(count));
  }
  close(ends[0]);
  if (failed) return command.python + " cannot be started";
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  while (complaints.ends_with('\n')) complaints.pop_back();
  const std::string last = complaints.substr(complaints.rfind('\n') + 1);
  return last.empty() ? command.python + " failed without a word" : last;
}

}  // namespace fem
