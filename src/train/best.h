#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "train/task.h"

namespace fem {

// The best validation so far, and how long ago it was: what early stopping and the kept checkpoint go by. Part of a
// checkpoint, so that a run that goes on decides as one that never stopped.
struct Best {
  int64_t validated = -1;  // step of the last validation; -1: none yet
  int64_t step = -1;       // of the best one
  double value = 0;        // of the goal's measure there
  int64_t since = 0;       // validations after it

  // Takes in the validation of a step; true if it is the best so far. What is not finite never is.
  bool observe(const Goal& goal, const NamedValues& measures, int64_t at_step);

  // Is the best as good as that?
  bool reaches(const Goal& goal, double enough) const;
};

nlohmann::json to_json(const Best& best);
Best best_from_json(const nlohmann::json& json);

}  // namespace fem
