#pragma once

#include <functional>
#include <string>

#include "fem/io/safetensors.h"
#include "inspect/subject.h"

namespace fem {

// Everything that the page of `fem inspect` shows, as docs/decisions/0037-the-microscope.md lists it; command: what
// makes it again. on_layer: how far.
inline constexpr int64_t kPageBytes = 16 << 20;  // of the tokens that are shown whole; a page is a third larger
Safetensors page_numbers(Subject& subject, const std::string& command,
                         const std::function<void(int64_t done, int64_t all)>& on_layer,
                         int64_t most_bytes = kPageBytes);

}  // namespace fem
