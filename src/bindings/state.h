#pragma once

#include <torch/custom_class.h>

#include "fem/state.h"

namespace fem {

// A MixerState that torch can hand to other languages: torch.classes.fem.MixerState.
struct StateHandle : torch::CustomClassHolder {
  MixerState state;
};

}  // namespace fem
