#pragma once

#include <algorithm>
#include <cstdint>

namespace fem {

// Of so many tokens the logits are in memory at once: 32 MB in float32, whatever the vocabulary.
inline int64_t logits_at_once(int64_t vocab_size) { return std::max<int64_t>((1 << 23) / vocab_size, 1); }

}  // namespace fem
