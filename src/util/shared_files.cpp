#include "util/shared_files.h"

#include "util/check.h"

namespace fem {

namespace fs = std::filesystem;

fs::path shared_files() {
  const fs::path program = fs::read_symlink("/proc/self/exe"), beside = program.parent_path();
  for (const fs::path& folder : {beside, beside.parent_path()})
    if (fs::is_directory(folder / "share" / "fem")) return folder / "share" / "fem";
  FEM_CHECK(false, "fem: expected its recipes in ", (beside.parent_path() / "share" / "fem").string(), ", beside ",
            program.string(), "; install it again with cmake --install or pip");
}

}  // namespace fem
