#pragma once

#include <filesystem>

namespace fem {

// The recipes (configs/), plot scripts (scripts/) and claims (experiments/) that came with this program: share/fem
// beside its bin folder, as it was installed, or in the build folder, where they are links to the source tree.
std::filesystem::path shared_files();

}  // namespace fem
