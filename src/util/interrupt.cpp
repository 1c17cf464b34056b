#include "util/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace fem {
namespace {

std::atomic<int> received = 0, guards = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // a handler may use it
struct sigaction previous_int, previous_term;

// Two sentences in turn: a handler never reads the one that is being written.
constexpr size_t kLongest = 256;
char losses[2][kLongest];
std::atomic<int> current = 0;

void say(const char* text) { [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text)); }

[[noreturn]] void die_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // the first process of a container does not die of a signal
}

// Calls only what may be called in a handler.
void on_signal(int signal) {
  const int before = errno;  // of whatever the signal came into
  int none = 0;
  const bool first = received.compare_exchange_strong(none, signal);
  const char* loss = losses[current];
  if (*loss) {
    say(first ? "\nfem: stopping; a second signal stops at once: " : "\nfem: stopped at once: ");
    say(loss);
    say("\n");
  }
  if (!first) die_by(signal);
  errno = before;
}

void set_loss(const std::string& loss) {
  const int next = 1 - current;
  losses[next][loss.copy(losses[next], kLongest - 1)] = '\0';
  current = next;
}

}  // namespace

InterruptGuard::InterruptGuard() : outer_(losses[current]) {
  if (guards++ > 0) return;
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write or a sync in progress is none the worse
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptGuard::~InterruptGuard() {
  set_loss(outer_);
  if (--guards > 0) return;
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

void InterruptGuard::costs(const std::string& loss) const { set_loss(loss); }

bool interrupted() { return guards > 0 && received != 0; }

int interrupt_signal() { return received; }

void take_interrupt(int signal) {
  int none = 0;
  received.compare_exchange_strong(none, signal);
}

void end_by_signal() {
  std::cout.flush();
  std::fflush(nullptr);
  die_by(interrupt_signal());
}

}  // namespace fem
