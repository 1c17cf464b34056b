#include "data/images.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include "data/idx.h"
#include "data/picture.h"
#include "io/temporary_folder.h"
#include "models/pixels.h"
#include "support/error_text.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using testing::fails_with;

std::string png_bytes(const at::Tensor& pixels) {  // [H, W, C], C 1 to 4
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.format = std::array<png_uint_32, 4>{PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                            PNG_FORMAT_RGBA}[static_cast<size_t>(pixels.size(2) - 1)];
  const at::Tensor rows = pixels.contiguous();
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, rows.const_data_ptr(), 0, nullptr);
  std::string bytes(size, '\0');
  EXPECT_NE(png_image_write_to_memory(&image, bytes.data(), &size, 0, rows.const_data_ptr(), 0, nullptr), 0);
  return bytes;
}

std::string jpeg_bytes(const at::Tensor& pixels, int format, int sampling) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;
  const at::Tensor rows = pixels.contiguous();
  EXPECT_EQ(tjCompress2(encoder, rows.const_data_ptr<uint8_t>(), static_cast<int>(rows.size(1)), 0,
                        static_cast<int>(rows.size(0)), format, &out, &size, sampling, 100, 0),
            0);
  const std::string bytes(reinterpret_cast<const char*>(out), size);
  tjFree(out);
  tjDestroy(encoder);
  return bytes;
}

// The same PNG with another size in its header, whose checksum is right.
std::string declared(std::string png, uint32_t width, uint32_t height) {
  const auto put = [&](size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) png[at + i] = static_cast<char>(value >> (24 - 8 * i));
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const unsigned char*>(png.data()) + 12, 17)));
  return png;
}

std::string idx_bytes(const std::vector<uint32_t>& sizes, const std::string& content) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes)
    for (int i = 3; i >= 0; --i) bytes += static_cast<char>(size >> (8 * i));
  return bytes + content;
}

class Pictures : public testing::TemporaryFolder {
 protected:
  at::Tensor read_bytes(const std::string& bytes) const {
    write(folder / "a.png", bytes);
    return read_picture(folder / "a.png");
  }
  const at::Tensor colour = at::arange(5 * 7 * 3, at::kByte).view({5, 7, 3}) * 2;
  const at::Tensor grey = at::arange(5 * 7, at::kByte).view({5, 7, 1}) * 7;
};

TEST_F(Pictures, ArePixelsAsInTheFile) {
  EXPECT_TRUE(read_bytes(png_bytes(colour)).equal(colour.permute({2, 0, 1})));
  EXPECT_TRUE(read_bytes(png_bytes(grey)).equal(grey.permute({2, 0, 1})));
  const at::Tensor opaque = at::full({5, 7, 1}, 255, at::kByte);
  EXPECT_TRUE(read_bytes(png_bytes(at::cat({colour, opaque}, 2))).equal(colour.permute({2, 0, 1})));
  // JPEG loses something of a smooth picture, but little.
  const auto worst = [&](const std::string& bytes, const at::Tensor& pixels) {
    return (read_bytes(bytes).to(at::kFloat) - pixels.permute({2, 0, 1}).to(at::kFloat)).abs().max().item<float>();
  };
  const at::Tensor smooth = at::arange(16, at::kByte).view({16, 1, 1}).expand({16, 16, 3}) * 10;
  EXPECT_LE(worst(jpeg_bytes(smooth, TJPF_RGB, TJSAMP_444), smooth), 3);
  EXPECT_LE(worst(jpeg_bytes(smooth.slice(2, 0, 1), TJPF_GRAY, TJSAMP_GRAY), smooth.slice(2, 0, 1)), 3);
}

TEST_F(Pictures, OfBadFilesAreRefusedWithASentence) {
  const auto refused = [&](const std::string& sentence, const std::string& bytes) {
    return fails_with(sentence, [&] { read_bytes(bytes); });
  };
  const std::string png = png_bytes(at::randint(256, {40, 40, 3}, at::kByte)),
                    jpeg = jpeg_bytes(at::randint(256, {40, 40, 3}, at::kByte), TJPF_RGB, TJSAMP_444);
  for (const size_t bytes : {size_t{20}, size_t{60}, png.size() / 2, png.size() - 20})
    EXPECT_TRUE(refused("a.png is damaged, or its end is missing (PNG: ", png.substr(0, bytes))) << bytes;
  EXPECT_TRUE(refused("a.png has no pixels: it is 0 x 0", jpeg.substr(0, 20)));
  for (const size_t bytes : {size_t{200}, jpeg.size() / 2, jpeg.size() - 20})
    EXPECT_TRUE(refused("a.png is damaged, or its end is missing (JPEG: ", jpeg.substr(0, bytes))) << bytes;
  std::string flipped = png;
  flipped[png.size() / 2] ^= 0x10;
  EXPECT_TRUE(refused("a.png is damaged", flipped));
  EXPECT_TRUE(refused("a.png is 30,000 x 30,000 pixels, expected at most 67,108,864", declared(png, 30000, 30000)));
  EXPECT_TRUE(refused("a.png is damaged", declared(png, 0, 40)));
  std::string huge = jpeg;  // the size in the frame's header
  const size_t frame = huge.find("\xFF\xC0");
  huge.replace(frame + 5, 4, "\x75\x30\x75\x30");
  EXPECT_TRUE(refused("a.png is 30,000 x 30,000 pixels", huge));
  EXPECT_TRUE(refused("a.png is neither a PNG nor a JPEG file", "GIF89a, or any other text"));
  EXPECT_TRUE(refused("a.png is empty", ""));
  EXPECT_TRUE(refused("a.png is transparent in places", png_bytes(at::full({3, 3, 4}, 100, at::kByte))));
  EXPECT_TRUE(
      refused("a.png is a JPEG in CMYK", jpeg_bytes(at::full({8, 8, 4}, 100, at::kByte), TJPF_CMYK, TJSAMP_444)));
  EXPECT_TRUE(fails_with("none.png cannot be read", [&] { read_picture(folder / "none.png"); }));
  EXPECT_TRUE(fails_with("cannot be read", [&] { read_picture(folder); }));
}

TEST_F(Pictures, AreFittedWithTheirProportions) {
  // A white disc's bounding box stays in the middle of a wide picture, and its sides are cut.
  at::Tensor wide = at::zeros({1, 20, 60}, at::kByte);
  wide.slice(2, 20, 40).fill_(200);
  const at::Tensor small = fitted(wide, 10, 10);
  EXPECT_EQ(small.sizes(), at::IntArrayRef({1, 10, 10}));
  EXPECT_GE(small.to(at::kFloat).mean().item<float>(), 190);
  EXPECT_TRUE(fitted(wide, 20, 60).equal(wide));
  EXPECT_EQ(with_channels(with_channels(wide, 3), 1).sub(wide).abs().max().item<int64_t>(), 0);
  EXPECT_EQ(with_channels(at::tensor({255, 0, 0}, at::kByte).view({3, 1, 1}), 1).item<int64_t>(), 76);
}

class ImageSets : public Pictures {
 protected:
  void picture(const std::string& name, const at::Tensor& pixels) const {
    fs::create_directories((folder / name).parent_path());
    write(folder / name, png_bytes(pixels));
  }
  ImageSet set(ImageFolder from = {}) const {
    from.folder = folder;
    return read_images(from);
  }
};

TEST_F(ImageSets, OfFoldersHaveTheirClassesInOrder) {
  picture("dog/1.png", grey);
  picture("cat/2.PNG", grey + 1);
  picture("cat/1.png", grey + 2);
  write(folder / "cat" / "notes.txt", "no picture");
  write(folder / "cat" / ".hidden.png", "no picture");
  const ImageSet read = set();
  EXPECT_EQ(read.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(read.train.labels.equal(at::tensor({0, 0, 1}, at::kLong)));
  EXPECT_TRUE(read.train.pixels[1].equal((grey + 1).permute({2, 0, 1})));
  EXPECT_EQ(read.test.count(), 0);
  EXPECT_EQ(read.notes, std::vector<std::string>{"1 files that are not called .png, .jpg or .jpeg were passed over"});
  picture("dog/1.png", grey + 1);
  EXPECT_NE(set().checksum, read.checksum);
}

TEST_F(ImageSets, OfTrainAndTestShareTheirClasses) {
  for (const char* name : {"train/a/1.png", "train/b/1.png", "test/b/1.png"}) picture(name, colour);
  EXPECT_TRUE(set().test.labels.equal(at::tensor({1}, at::kLong)));
  picture("test/c/1.png", colour);
  EXPECT_TRUE(fails_with("c is a class that the training pictures have not", [&] { set(); }));
}

TEST_F(ImageSets, OfSeveralSizesAreRefusedUnlessScaled) {
  picture("a/1.png", colour);
  picture("b/1.png", at::zeros({9, 9, 3}, at::kByte));
  EXPECT_TRUE(fails_with("1.png has 9 x 9 pixels in colour, but ", [&] { set(); }));
  EXPECT_TRUE(fails_with("scale all with --size N", [&] { set(); }));
  EXPECT_EQ(set({.size = 4}).train.pixels.sizes(), at::IntArrayRef({2, 3, 4, 4}));
  picture("b/1.png", grey);
  EXPECT_TRUE(fails_with("convert all with --set data.channels=3", [&] { set(); }));
  EXPECT_EQ(set({.channels = 1}).train.pixels.sizes(), at::IntArrayRef({2, 1, 5, 7}));
  fs::remove(folder / "b" / "1.png");
  EXPECT_TRUE(fails_with("b has no .png, .jpg or .jpeg file", [&] { set(); }));
  fs::remove(folder / "b");
  EXPECT_TRUE(fails_with("at least two classes", [&] { set(); }));
  EXPECT_TRUE(fails_with("which does not exist", [&] { read_images({.folder = folder / "none"}); }));
}

TEST_F(ImageSets, OfIdxFilesPackedOrNot) {
  const std::string pixels =
                        "\1\2\3\4\5\6"
                        "abcdef",
                    labels("\0\2", 2);
  write(folder / "train-images-idx3-ubyte", idx_bytes({2, 2, 3}, pixels));
  write(folder / "train-labels-idx1-ubyte", idx_bytes({2}, labels));
  const ImageSet plain = set();
  EXPECT_EQ(plain.train.pixels.sizes(), at::IntArrayRef({2, 1, 2, 3}));
  EXPECT_EQ(plain.train.pixels[1][0][0][1].item<int64_t>(), 'b');
  EXPECT_EQ(plain.classes, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(set({.classes = {"x", "y", "z"}}).classes[2], "z");
  EXPECT_TRUE(fails_with("expected names of 3 classes", [&] { set({.classes = {"x"}}); }));
  fs::remove(folder / "train-images-idx3-ubyte");
  const std::string bytes = idx_bytes({2, 2, 3}, pixels);
  const gzFile packed = gzopen((folder / "train-images-idx3-ubyte.gz").c_str(), "wb");
  gzwrite(packed, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(packed);
  EXPECT_EQ(set().checksum, plain.checksum);
  const std::string gz = read(folder / "train-images-idx3-ubyte.gz");
  write(folder / "train-images-idx3-ubyte.gz", gz.substr(0, gz.size() - 9));
  EXPECT_TRUE(fails_with("idx3-ubyte.gz is damaged, or its end is missing", [&] { set(); }));
}

TEST_F(ImageSets, OfBadIdxFilesAreRefused) {
  const auto refused = [&](const std::string& sentence, const std::string& bytes) {
    write(folder / "file", bytes);
    return fails_with(sentence, [&] { read_idx(folder / "file", 3); });
  };
  EXPECT_TRUE(refused("file has 3 bytes, too few", "abc"));
  EXPECT_TRUE(
      refused("file is not an IDX file of unsigned bytes in 3 dimensions", idx_bytes({16}, "0123456789abcdef")));
  EXPECT_TRUE(refused("file declares 8 bytes, but has 7", idx_bytes({2, 2, 2}, "1234567")));
  EXPECT_TRUE(refused("file declares 8 bytes, but has more", idx_bytes({2, 2, 2}, "123456789")));
  EXPECT_TRUE(refused("file holds nothing: dimension 2 is 0", idx_bytes({2, 0, 2}, "")));
  EXPECT_TRUE(refused("declares more than", idx_bytes({4000000000, 30000, 30000}, "")));
  write(folder / "train-images-idx3-ubyte", idx_bytes({2, 1, 1}, "ab"));
  write(folder / "train-labels-idx1-ubyte", idx_bytes({3}, "\1\1\1"));
  EXPECT_TRUE(fails_with("has 2 pictures, but ", [&] { set(); }));
  fs::remove(folder / "train-labels-idx1-ubyte");
  EXPECT_TRUE(fails_with("one of them is missing", [&] { set(); }));
}

}  // namespace
}  // namespace fem
