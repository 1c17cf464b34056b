#include "ops/operator.h"

#include <c10/util/Exception.h>

namespace fem {

void announce_plain() {
  TORCH_WARN_ONCE(
      "fem has kernels for the CPU only: on other devices its reads run torch's attention and batched products, its "
      "other operators their plain definitions. They give the same numbers with more time and memory, and have been "
      "tested on the CPU only");
}

}  // namespace fem
