// Jobs that threads take one after the other, so that a thread that the machine slows down takes fewer.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>

namespace fem {

// Calls job(index, scratch) for every index < count; scratch is the thread's own. What a job computes must not depend
// on which thread takes it or when.
template <typename Job>
void run_jobs(int64_t count, int64_t scratch_floats, Job&& job) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), count), 1, [&](int64_t, int64_t) {
    const at::Tensor scratch = at::empty({scratch_floats}, at::kFloat);
    float* memory = scratch.data_ptr<float>();
    for (int64_t index = next++; index < count; index = next++) job(index, memory);
  });
}

}  // namespace fem
