// One picture: from a file to pixels.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace fem {

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // of a picture

// A PNG or JPEG file as [C, H, W] uint8, C 1 (grey) or 3 (RGB) as in the file. What it is is told by its bytes, not by
// its name. Whatever is damaged, too large, transparent or no picture throws one sentence that names the file.
at::Tensor read_picture(const std::filesystem::path& path);

// The same picture in grey (by luma) or in colour.
at::Tensor with_channels(const at::Tensor& pixels, int64_t channels);

// Scaled until it just covers height x width, its proportions kept, and cut to it in the middle. A picture of that size
// stays as it is.
at::Tensor fitted(const at::Tensor& pixels, int64_t height, int64_t width);

// "28 x 28 pixels in grey"
std::string size_text(const at::Tensor& pixels);

}  // namespace fem
