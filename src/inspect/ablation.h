// What does it cost a trained model if its read is made plain again? The inner gate is set, in some or all channels,
// and the loss taken.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "inspect/subject.h"

namespace fem {

struct Ablation {
  std::string what;  // "layer 2, lambda = 0"
  double share = 0;  // of the model's channels that are set
  double loss = 0;
};

// The model as it is; lambda = 0 (the mean is read, as attention does) and 1 (the free energy) everywhere and layer by
// layer; and 0 in the channels whose mean lambda over the subject is below each of the thresholds. The weights are put
// back.
std::vector<Ablation> ablate(Subject& subject, const std::vector<double>& thresholds,
                             const std::function<void(int64_t done, int64_t all)>& on_step);

std::string ablation_table(const std::vector<Ablation>& ablations, const char* unit);
Json ablation_document(const std::vector<Ablation>& ablations);

}  // namespace fem
