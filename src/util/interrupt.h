#pragma once

namespace fem {

// While one lives, the first SIGINT or SIGTERM only sets a flag, so that loops can end between two steps and save
// their work; a second one ends the process at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// The signal that asked us to stop, 0 if none did. The usual exit status is 128 + signal.
int interrupt_signal();
inline bool interrupted() { return interrupt_signal() != 0; }

}  // namespace fem
