#include "data/picture.h"

#include <ATen/ATen.h>
#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <memory>

#include "io/read_file.h"
#include "models/pixels.h"
#include "util/check.h"
#include "util/grouped.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestPicture = uint64_t{1} << 28;  // bytes of a file

void check_size(const std::string& name, int64_t width, int64_t height) {
  FEM_CHECK(width >= 1 && height >= 1, "picture: ", name, " has no pixels: it is ", width, " x ", height);
  FEM_CHECK(width <= kMostPixels / height, "picture: ", name, " is ", grouped(width), " x ", grouped(height),
            " pixels, expected at most ", grouped(kMostPixels), " in all; scale it down first");
}

// libpng's simplified interface: no setjmp, and 8 bits of sRGB whatever the file has.
at::Tensor png_pixels(const std::string& bytes, const std::string& name) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&image, png_image_free);
  const auto check_read = [&](bool good) {
    FEM_CHECK(good, "picture: ", name, " is damaged, or its end is missing (PNG: ", image.message, ")");
  };
  check_read(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0);
  check_size(name, image.width, image.height);
  const bool colour = (image.format & PNG_FORMAT_FLAG_COLOR) != 0, alpha = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  image.format = (colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) | (alpha ? PNG_FORMAT_FLAG_ALPHA : 0);
  const int64_t channels = PNG_IMAGE_SAMPLE_CHANNELS(image.format);
  at::Tensor pixels = at::empty({image.height, image.width, channels}, at::kByte);
  check_read(png_image_finish_read(&image, nullptr, pixels.data_ptr<uint8_t>(), 0, nullptr) != 0);
  if (alpha) {
    FEM_CHECK(pixels.select(2, channels - 1).eq(255).all().item<bool>(), "picture: ", name,
              " is transparent in places; expected grey or RGB: lay it on a background first");
    pixels = pixels.slice(2, 0, channels - 1);
  }
  return pixels.permute({2, 0, 1}).contiguous();
}

at::Tensor jpeg_pixels(const std::string& bytes, const std::string& name) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  FEM_CHECK(decoder, "picture: the JPEG decoder cannot be started");
  const auto check_read = [&](int status) {
    FEM_CHECK(status == 0, "picture: ", name,
              " is damaged, or its end is missing (JPEG: ", tjGetErrorStr2(decoder.get()), ")");
  };
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, sampling = 0, space = 0;
  check_read(tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &sampling, &space));
  check_size(name, width, height);
  FEM_CHECK(space != TJCS_CMYK && space != TJCS_YCCK, "picture: ", name,
            " is a JPEG in CMYK; expected grey or RGB: convert it first");
  const bool colour = space != TJCS_GRAY;
  const at::Tensor pixels = at::empty({height, width, colour ? 3 : 1}, at::kByte);
  check_read(tjDecompress2(decoder.get(), data, bytes.size(), pixels.data_ptr<uint8_t>(), width, 0, height,
                           colour ? TJPF_RGB : TJPF_GRAY, TJFLAG_STOPONWARNING));
  return pixels.permute({2, 0, 1}).contiguous();
}

}  // namespace

at::Tensor read_picture(const fs::path& path) {
  const std::string bytes = read_file(path, "picture", kLargestPicture), name = path.string();
  FEM_CHECK(!bytes.empty(), "picture: ", name, " is empty; expected a PNG or JPEG file");
  if (bytes.starts_with("\x89PNG")) return png_pixels(bytes, name);
  FEM_CHECK(bytes.starts_with("\xFF\xD8\xFF"), "picture: ", name, " is neither a PNG nor a JPEG file");
  return jpeg_pixels(bytes, name);
}

}  // namespace fem
