// Pixels as people have them, and as a model sees them.
#pragma once

#include <string>

#include "fem/image_classifier.h"

namespace fem {

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // of a picture

// The same picture [C, H, W] uint8 in grey (by luma) or in colour.
at::Tensor with_channels(const at::Tensor& pixels, int64_t channels);

// Scaled until it just covers height x width, its proportions kept, and cut to it in the middle. A picture of that size
// stays as it is.
at::Tensor fitted(const at::Tensor& pixels, int64_t height, int64_t width);

// What a model sees of a picture [C, H, W], grey or RGB, of any size: [channels, height, width] uint8. Floats go from 0
// to 1 and are rounded to the nearest of 256 levels.
at::Tensor picture_for(const ImageClassifierOptions& model, const at::Tensor& pixels);

// "28 x 28 pixels in grey"
std::string size_text(const at::Tensor& pixels);

}  // namespace fem
