// trainer_state.json of a checkpoint: where a run goes on.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "train/best.h"

namespace fem {

struct TrainerState {
  int64_t step = 0;
  double seconds = 0;  // that the run took up to here
  Best best;
  nlohmann::json identity;  // of the run, see Trainer::identity
};

void write_trainer_state(const std::filesystem::path& path, const TrainerState& state);
TrainerState read_trainer_state(const std::filesystem::path& path);

}  // namespace fem
