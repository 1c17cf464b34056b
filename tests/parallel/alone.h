#pragma once

#include <chrono>
#include <memory>

#include "parallel/process_group.h"

namespace fem::testing {

// A process that trains by itself.
inline std::shared_ptr<ProcessGroup> alone() { return ProcessGroup::connect({}, std::chrono::seconds(1)); }

}  // namespace fem::testing
