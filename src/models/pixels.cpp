#include "models/pixels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "util/check.h"
#include "util/grouped.h"

namespace fem {
namespace {

// Floats from 0 to 1 as bytes.
at::Tensor bytes_of(const at::Tensor& pixels) {
  if (pixels.scalar_type() == at::kByte) return pixels;
  FEM_CHECK(at::isFloatingType(pixels.scalar_type()),
            "picture: expected pixels as uint8, or as floats from 0 to 1, got ", pixels.scalar_type());
  const at::Tensor values = pixels.detach().to(at::kDouble);
  FEM_CHECK(
      values.ge(0).logical_and(values.le(1)).all().item<bool>(),
      "picture: expected floats from 0 to 1, got some outside or none at all (NaN); pixels from 0 to 255 are uint8");
  return (values * 255).round().to(at::kByte);
}

}  // namespace

at::Tensor with_channels(const at::Tensor& pixels, int64_t channels) {
  FEM_CHECK(channels == 1 || channels == 3, "picture: expected 1 channel (grey) or 3 (RGB), got ", channels);
  if (pixels.size(0) == channels) return pixels;
  if (channels == 3) return pixels.expand({3, -1, -1}).contiguous();
  const at::Tensor luma = at::tensor({0.299, 0.587, 0.114}, at::kFloat).view({3, 1, 1});
  return (pixels.to(at::kFloat) * luma).sum(0, /*keepdim=*/true).round().to(at::kByte);
}

at::Tensor fitted(const at::Tensor& pixels, int64_t height, int64_t width) {
  const int64_t own_height = pixels.size(1), own_width = pixels.size(2);
  if (own_height == height && own_width == width) return pixels;
  const double scale = std::max(static_cast<double>(height) / static_cast<double>(own_height),
                                static_cast<double>(width) / static_cast<double>(own_width));
  const auto scaled = [&](int64_t length, int64_t least) {
    return std::max<int64_t>(std::llround(static_cast<double>(length) * scale), least);
  };
  const int64_t high = scaled(own_height, height), wide = scaled(own_width, width);
  FEM_CHECK(high <= kMostPixels / wide, "picture: one of ", size_text(pixels), " is too long to be scaled to ", width,
            " x ", height);
  const at::Tensor large = at::_upsample_bilinear2d_aa(pixels.to(at::kFloat).unsqueeze(0), {high, wide},
                                                       /*align_corners=*/false)[0];
  const int64_t top = (high - height) / 2, left = (wide - width) / 2;
  return large.slice(1, top, top + height).slice(2, left, left + width).round().clamp(0, 255).to(at::kByte);
}

std::string size_text(const at::Tensor& pixels) {
  return grouped(pixels.size(-1)) + " x " + grouped(pixels.size(-2)) + " pixels in " +
         (pixels.size(-3) == 1 ? "grey" : "colour");
}

at::Tensor picture_for(const ImageClassifierOptions& model, const at::Tensor& pixels) {
  FEM_CHECK(pixels.dim() == 3 && (pixels.size(0) == 1 || pixels.size(0) == 3) && pixels.numel() > 0 &&
                pixels.device().is_cpu(),
            "picture: expected pixels in shape [1 (grey) or 3 (RGB), height, width] on the CPU, got ", shape_of(pixels),
            " on ", pixels.device());
  FEM_CHECK(pixels.size(1) <= kMostPixels / pixels.size(2), "picture: expected at most ", grouped(kMostPixels),
            " pixels, got ", size_text(pixels), "; scale it down first");
  return fitted(with_channels(bytes_of(pixels), model.channels), model.height, model.width);
}

}  // namespace fem
