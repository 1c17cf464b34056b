#include "bench/memory.h"

namespace fem::bench {

Memory memory_of(const Work& work) { return allocated_by(work); }

int64_t bytes_of(const MixerState& state) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : state.to_tensors()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace fem::bench
