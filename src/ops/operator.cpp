#include "ops/operator.h"

#include <c10/util/Exception.h>

namespace fem {

void announce_definition() {
  TORCH_WARN_ONCE(
      "fem has kernels for the CPU only: on other devices its operators run their plain definitions, which give the "
      "same numbers with more time and memory");
}

}  // namespace fem
