// Whether a run fits into memory, found before it starts rather than by the kernel that ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>

#include "train/trainer.h"
#include "util/memory.h"

namespace fem {

// Parameters, their gradients and AdamW's two moments in float32.
int64_t bytes_of_parameters(int64_t count);

// Refuses what can never fit, with what to do; before the parameters are made.
void check_parameters_fit(int64_t count, const MemoryLimits& limits = memory_limits());

// The same for all that a step takes, as the trainer estimates it. What fits but not now is told to log.
void check_step_fits(Trainer& trainer, const TrainOptions& options, std::ostream& log,
                     const MemoryLimits& limits = memory_limits());

// Runs a run; memory that could not be had becomes one sentence with what to do.
void with_memory_remedy(const TrainOptions& options, int64_t micro_batch, const std::function<void()>& run);

}  // namespace fem
