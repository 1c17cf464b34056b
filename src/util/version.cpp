#include "fem/version.h"

namespace fem {

std::string version() { return FEM_VERSION; }

}  // namespace fem
