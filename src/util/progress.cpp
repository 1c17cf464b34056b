#include "util/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "util/table.h"
#include "util/terminal.h"

namespace fem {
namespace {

constexpr int kBarCells = 24, kFewestCells = 4;
constexpr const char* kBetween = "  ";  // two figures

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int terminal_columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double fraction_of(const ProgressState& s) {
  return s.total > 0 ? std::clamp(static_cast<double>(s.done) / s.total, 0.0, 1.0) : 1.0;
}

std::string figures(const ProgressState& s) {
  char percent[16];
  std::snprintf(percent, sizeof(percent), "%3d %%", static_cast<int>(100 * fraction_of(s)));
  std::string text = std::string(percent) + kBetween + grouped(s.done) + "/" + grouped(s.total);
  const auto done = static_cast<double>(s.done - s.first);
  if (done > 0 && s.seconds > s.beside) {
    const double rate = done / (s.seconds - s.beside), left = static_cast<double>(s.total - s.done) * s.seconds / done;
    text += kBetween + fixed(rate, rate < 10 ? 2 : 0) + " " + s.unit + "/s" + kBetween;
    text += s.done < s.total ? "ETA " + clock_text(left) : "in " + clock_text(s.seconds);
  }
  return s.note.empty() ? text : text + kBetween + s.note;
}

std::string without_last_figures(const std::string& line, size_t longest) {
  if (line.size() <= longest) return line;
  const size_t end = line.rfind(kBetween, longest);
  return line.substr(0, end == std::string::npos ? longest : end);
}

}  // namespace

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  char text[32];
  if (s < 3600)
    std::snprintf(text, sizeof(text), "%d:%02d", static_cast<int>(s / 60), static_cast<int>(s % 60));
  else
    std::snprintf(text, sizeof(text), "%lld:%02d:%02d", static_cast<long long>(s / 3600), static_cast<int>(s / 60 % 60),
                  static_cast<int>(s % 60));
  return text;
}

std::string progress_bar(const ProgressState& s, int columns) {
  const int longest = std::max(columns - 1, 0);  // a line that wraps cannot be redrawn by a carriage return
  const int room = longest - static_cast<int>(progress_line(s).size() + std::strlen("[] "));
  const int cells = std::min(room, kBarCells), full = static_cast<int>(cells * fraction_of(s));
  if (cells < kFewestCells) return without_last_figures(progress_line(s), longest);
  return s.label + " [" + std::string(full, '#') + std::string(cells - full, '.') + "] " + figures(s);
}

std::string progress_line(const ProgressState& s) { return s.label + " " + figures(s); }

Progress::Progress(std::string label, int64_t total, std::string unit, int64_t first)
    : state_{.label = Printable()(label), .done = first, .total = total, .first = first, .unit = std::move(unit)},
      terminal_(isatty(STDERR_FILENO)),
      logged_(first) {
  if (terminal_) draw();
}

Progress::~Progress() {
  state_.seconds = seconds_between(start_, Clock::now());
  if (terminal_) {
    draw();
    std::fputc('\n', stderr);
  } else if (state_.done != logged_) {
    log();
  }
}

void Progress::update(int64_t done, std::string note) {
  state_.done = done;
  if (!note.empty()) state_.note = std::move(note);
  const auto now = Clock::now();
  state_.seconds = seconds_between(start_, now);
  const double quiet = seconds_between(drawn_, now);
  if (terminal_) {
    if (quiet >= 0.1) draw();
    return;
  }
  const auto tenth = [&](int64_t at) { return 10 * at / std::max<int64_t>(state_.total, 1); };
  if (quiet >= 30 || (quiet >= 5 && tenth(done) > tenth(logged_))) log();
}

void Progress::draw() {
  std::fprintf(stderr, "\r%s\033[K", progress_bar(state_, terminal_columns()).c_str());
  std::fflush(stderr);
  drawn_ = Clock::now();
}

void Progress::log() {
  std::fprintf(stderr, "%s\n", progress_line(state_).c_str());
  std::fflush(stderr);
  drawn_ = Clock::now();
  logged_ = state_.done;
}

}  // namespace fem
