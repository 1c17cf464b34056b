// One picture: from a file to pixels.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace fem {

// A PNG or JPEG file as [C, H, W] uint8, C 1 (grey) or 3 (RGB) as in the file. What it is is told by its bytes, not by
// its name. Whatever is damaged, too large, transparent or no picture throws one sentence that names the file.
at::Tensor read_picture(const std::filesystem::path& path);

}  // namespace fem
