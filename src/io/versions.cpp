#include "io/versions.h"

#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include "fem/version.h"

namespace fem {

Json versions_json() {
  return {{"fem", version()}, {"torch", TORCH_VERSION}, {"isa", instruction_set()}, {"threads", at::get_num_threads()}};
}

}  // namespace fem
