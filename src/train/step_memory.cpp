#include "train/step_memory.h"

#include <ostream>

#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

// Tensors leave gaps between each other: what a process holds is more than they are (docs/decisions/0024).
constexpr double kWithGaps = 1.5;

std::string gigabytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / 1e9, bytes < 10'000'000'000 ? 2 : 0) + " GB";
}

std::string smaller_steps(const TrainOptions& options, int64_t micro_batch) {
  std::string remedy;
  if (micro_batch > 1) remedy += "lower train.micro_batch (it is " + grouped(micro_batch) + " rows)";
  if (!options.recompute) remedy += std::string(remedy.empty() ? "" : ", or ") + "set train.recompute=true";
  return remedy.empty() ? "make rows or model smaller" : remedy;
}

}  // namespace

int64_t bytes_of_parameters(int64_t count) { return 4 * static_cast<int64_t>(sizeof(float)) * count; }

void check_parameters_fit(int64_t count, const MemoryLimits& limits) {
  FEM_CHECK(bytes_of_parameters(count) <= limits.total, "train: ", grouped(count), " parameters take ",
            gigabytes(bytes_of_parameters(count)), " with their gradients and AdamW's moments, but there are only ",
            gigabytes(limits.total), " of memory; train a smaller model, or on a larger machine");
}

void check_step_fits(Trainer& trainer, const TrainOptions& options, std::ostream& log, const MemoryLimits& limits) {
  const int64_t fixed_bytes = bytes_of_parameters(trainer.parameter_count());
  const int64_t activations = trainer.bytes_of_a_micro_batch();
  const std::string remedy = smaller_steps(options, trainer.micro_batch());
  FEM_CHECK(fixed_bytes + activations <= limits.total, "train: a step takes at least ",
            gigabytes(fixed_bytes + activations), " (", gigabytes(fixed_bytes), " parameters, gradients and moments, ",
            gigabytes(activations), " a micro-batch), but there are only ", gigabytes(limits.total), " of memory; ",
            remedy);
  if (kWithGaps * static_cast<double>(activations) > static_cast<double>(limits.available))
    log << "A micro-batch takes " << gigabytes(activations) << " or half as much again, and "
        << gigabytes(limits.available) << " of memory are free: the system may end this process. To prevent that, "
        << remedy << ".\n"
        << std::flush;
}

void with_memory_remedy(const TrainOptions& options, int64_t micro_batch, const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    FEM_CHECK(false, "train: memory ran out; ", smaller_steps(options, micro_batch),
              ". --resume then goes on from the last checkpoint");
  }
}

}  // namespace fem
