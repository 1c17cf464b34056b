// The memory that there is, and the memory that work takes.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>

namespace fem {

struct MemoryLimits {
  int64_t total = 0;  // what a process can ever have: the machine's memory and swap, or the limit of a control group
  int64_t available = 0;  // what is left of it now, without swapping
};

// Of this process: /proc/meminfo, and the control groups (versions 1 and 2) that it is in.
MemoryLimits memory_limits(const std::filesystem::path& root = "/");

// What tensors that are allocated during work() take; not what was there before. Counts torch's CPU allocator; buffers
// that BLAS keeps for itself are on nobody's account.
struct Allocated {
  int64_t peak_bytes;   // the most that is held at one time: saved tensors, gradients and scratch
  int64_t kept_bytes;   // held when it is over
  int64_t allocations;  // how many blocks were asked for
};
Allocated allocated_by(const std::function<void()>& work);

// What the process holds of the machine's memory, whoever asked for it (Linux: the resident set).
int64_t resident_bytes();

// Is it that memory could not be had, by C++ or by torch?
bool is_out_of_memory(const std::exception& error);

}  // namespace fem
