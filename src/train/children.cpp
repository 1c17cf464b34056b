#include "train/children.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "util/check.h"

namespace fem {
namespace {

constexpr int kNotStarted = 127;

// Between fork and exec: nothing but system calls.
[[noreturn]] void become(char** argv, int log, pid_t parent) {
  ::setpgid(0, 0);  // the terminal's signals go to our own group
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);
  const int none = ::open("/dev/null", O_RDONLY);
  ::dup2(none, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(argv[0], argv);
  ::_exit(kNotStarted);
}

}  // namespace

Children::~Children() {
  for (const Process& process : processes_) ::kill(process.id, SIGKILL);
  for (const Process& process : processes_) ::waitpid(process.id, nullptr, 0);
}

void Children::start(size_t key, const std::vector<std::string>& command, const std::filesystem::path& log) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  FEM_CHECK(file >= 0, "sweep: ", log.string(), " cannot be written: ", std::strerror(errno));
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as whoever started us may have left it, it would leave no status to wait for
  const pid_t self = ::getpid(), child = ::fork();
  if (child == 0) become(argv.data(), file, self);
  ::close(file);
  FEM_CHECK(child > 0, "sweep: a process for a run cannot be started: ", std::strerror(errno));
  processes_.push_back({child, key});
}

std::vector<Children::End> Children::ended() {
  std::vector<End> ends;
  std::erase_if(processes_, [&](const Process& process) {
    int status = 0;
    if (::waitpid(process.id, &status, WNOHANG) != process.id) return false;
    std::optional<std::string> failure;
    if (WIFSIGNALED(status))
      failure = "signal " + std::to_string(WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
      failure = "exit status " + std::to_string(WEXITSTATUS(status));
    ends.push_back({process.key, failure});
    return true;
  });
  return ends;
}

void Children::terminate() {
  for (const Process& process : processes_) ::kill(process.id, SIGTERM);
}

std::vector<size_t> Children::keys() const {
  std::vector<size_t> keys;
  for (const Process& process : processes_) keys.push_back(process.key);
  return keys;
}

}  // namespace fem
