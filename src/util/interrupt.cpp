#include "util/interrupt.h"

#include <csignal>

namespace fem {
namespace {

volatile std::sig_atomic_t received = 0;
struct sigaction previous_int, previous_term;

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = [](int signal) { received = signal; };
  action.sa_flags = SA_RESETHAND;  // the second signal meets the default: the process ends
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

int interrupt_signal() { return received; }

}  // namespace fem
