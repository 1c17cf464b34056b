#include <c10/util/Exception.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <limits>

#include "commands.h"
#include "util/interrupt.h"
#include "util/memory.h"
#include "util/terminal.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

int run(int argc, char** argv) {
  int status = 0;
  const auto app = fem::make_app(status);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? 0 : kUsage;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // Memory once had is kept: glibc would map tensors of 32 MB and more afresh, page by page, at every allocation.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const fem::PrintableTerminal terminal;
  int status = kFailure;
  try {
    status = run(argc, argv);
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "fem: " << error.path1().string() << ": " << error.code().message()
              << "; is it the right place, and may it be written to?\n";
  } catch (const std::exception& error) {
    const auto* const raised = dynamic_cast<const c10::Error*>(&error);
    const char* sentence = raised ? raised->what_without_backtrace() : error.what();
    if (fem::is_out_of_memory(error)) sentence = "memory ran out; ask for less at a time, or close other programs";
    std::cerr << "fem: " << sentence << "\n";
  }
  // Whatever the command could still finish, and saved: who interrupts it means all that was to follow.
  if (fem::interrupt_signal() != 0) fem::end_by_signal();
  return status;
}
