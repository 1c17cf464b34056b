// torch's Gloo backend. The wheel contains it, but none of Gloo's own headers that torch's header includes: the few
// declarations it needs are in declarations/gloo.
#pragma once

#include <torch/version.h>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13,
              "src/parallel/declarations/gloo was written for torch 2.13: compare it with what this torch's "
              "ProcessGroupGloo.hpp uses of Gloo, run fem_parallel_tests, and name the new version here");

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
