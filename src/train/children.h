#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fem {

// Processes of our own that run side by side. They do not outlive this one, and a Ctrl-C at the terminal reaches them
// through us alone, so that each has one signal to save its work on.
class Children {
 public:
  ~Children();  // kills what still runs

  struct End {
    size_t key;
    std::optional<std::string> failure;  // "exit status 1", "signal 9"; nothing: it ended well
  };

  // What it prints is appended to log. Throws if it cannot be started.
  void start(size_t key, const std::vector<std::string>& command, const std::filesystem::path& log);
  std::vector<End> ended();  // since the last call; does not wait
  void terminate();          // asks all to save and end

  size_t running() const { return processes_.size(); }
  std::vector<size_t> keys() const;

 private:
  struct Process {
    pid_t id;
    size_t key;
  };
  std::vector<Process> processes_;
};

}  // namespace fem
