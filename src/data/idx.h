#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace fem {

// The unsigned bytes of an IDX file (LeCun's MNIST format), packed by gzip or not, as a tensor of so many dimensions.
// Throws one sentence that names the file.
at::Tensor read_idx(const std::filesystem::path& path, int64_t dimensions);

}  // namespace fem
