#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "evaluate/perplexity.h"
#include "train/config.h"

namespace fem {

struct TrainResult {
  bool finished = false;  // false: a signal ended it, after a checkpoint
  int64_t step = 0;
  int64_t parameters = 0;
  double tokens_per_second = 0;
  Perplexity validation;  // of the whole validation text, at the end
};

// Trains as config says into the folder out: checkpoints/, metrics.jsonl, tensorboard/, config.json. With resume it
// goes on from the newest checkpoint if there is one; without, a folder that has any is refused. What the run is goes
// to log; progress goes to stderr. Only rank 0 writes.
TrainResult train(const TrainConfig& config, const std::filesystem::path& out, bool resume, std::ostream& log);

}  // namespace fem
