#pragma once

#include <exception>
#include <string>

namespace fem {

// While one lives, the first SIGINT or SIGTERM only sets a flag, so that loops can end between two batches and save
// their work; a second one ends the process at once. One inside another changes nothing of that, and does not forget a
// signal that came before it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // What a second signal costs: "steps 101 to 120 are lost". The first signal says so, and the second.
  void costs(const std::string& loss) const;

 private:
  const std::string outer_;  // what was said before this one
};

// Has a signal asked us to stop while a guard lives?
bool interrupted();
// Which one, 0 if none did; known also after the last guard's end.
int interrupt_signal();

// As if the signal had come to this process: it came to another one of the same run.
void take_interrupt(int signal);

// What callbacks between two batches throw to get out of a loop that knows nothing of signals.
struct Interrupted final : std::exception {
  const char* what() const noexcept override { return "stopped by a signal"; }
};
inline void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

// Ends the process by the signal that interrupted it, once its work is saved: a shell sees 128 + signal, and a script
// that runs several commands ends with this one.
[[noreturn]] void end_by_signal();

}  // namespace fem
