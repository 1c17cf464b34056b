#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fem {

// What a progress line says.
struct ProgressState {
  std::string label = {};
  int64_t done = 0;
  int64_t total = 1;
  double seconds = 0;  // since the start
  double beside = 0;   // of these, spent on something else (validations); the rate ignores them, the time left does not
  int64_t first = 0;   // where counting started (a resumed run); the rate ignores what was done before
  std::string unit = "it";
  std::string note = {};  // free text, such as the loss
};

// "0:07", "12:34", "1:02:03"
std::string clock_text(double seconds);
// "fem seed 0 [#####.....]  50 %  1,000/2,000  152 step/s  ETA 0:07  loss 0.03" in less than so many columns: the bar
// gives way first, then whole figures from the end.
std::string progress_bar(const ProgressState& state, int columns);
// The same without the bar, for logs.
std::string progress_line(const ProgressState& state);

// On a terminal a bar that redraws itself at most ten times a second; otherwise (a log, a pipe) a plain line every ten
// per cent, but not more often than every five seconds and not less often than every thirty. Writes to stderr.
class Progress {
 public:
  Progress(std::string label, int64_t total, std::string unit, int64_t first = 0);
  ~Progress();  // leaves the last state standing as a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, std::string note = "");
  void leave_out(double seconds) { state_.beside += seconds; }  // of the rate

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  void log();

  ProgressState state_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  int64_t logged_;  // what the last plain line said
};

}  // namespace fem
