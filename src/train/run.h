#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "train/options.h"
#include "train/task.h"

namespace fem {

struct RunOptions {
  std::filesystem::path out;
  bool resume = false;
  std::optional<int64_t> resume_from = {};  // a step before the newest; those after it are set aside
  std::string label = "train";              // of the progress line
  std::function<void(int64_t step, const NamedValues& measures)> on_validation = {};
};

struct TrainResult {
  bool finished = false;  // false: a signal ended it, after a checkpoint
  int64_t step = 0;
  int64_t parameters = 0;
  double seconds = 0;         // of the whole run, also of its parts before an interruption
  NamedValues measures;       // of the validation at the end
  int64_t measured_step = 0;  // whose parameters were measured: the last step's, or with keep_best the best one's
};

// Trains as the options say into the folder out: checkpoints/, metrics.jsonl, tensorboard/, config.json, and
// result.json when it has finished. With resume it goes on from the newest checkpoint if there is one, and a finished
// run is left as it is; without, a folder that has any is refused before the task is made. The folder is this process's
// alone until the run ends. What the run is goes to log; progress goes to stderr. Only rank 0 writes. A signal is seen
// between two batches of a step or of a validation: what was begun is dropped whole and made again by the run that goes
// on. make_task: given the folder whose parameters the run begins with, empty if they are fresh.
using MakeTask = std::function<std::unique_ptr<Task>(const std::filesystem::path& start)>;
TrainResult train(const MakeTask& make_task, const TrainOptions& options, const RunOptions& run, std::ostream& log);

}  // namespace fem
