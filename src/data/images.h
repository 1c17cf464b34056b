// Pictures with their classes, as people keep them: IDX files, or a folder for every class.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fem {

struct LabelledImages {
  at::Tensor pixels;  // [N, C, H, W] uint8
  at::Tensor labels;  // [N] int64

  int64_t count() const { return labels.size(0); }
  LabelledImages at(const at::Tensor& places) const;
};

struct ImageSet {
  LabelledImages train;
  LabelledImages test;  // none where the folder has no part of that name
  std::vector<std::string> classes;
  std::string checksum;            // of pixels, labels and classes
  std::vector<std::string> notes;  // what was passed over
};

struct ImageFolder {
  std::filesystem::path folder;
  std::vector<std::string> classes = {};  // names of IDX classes, which are numbers otherwise
  int64_t size = 0;                       // pictures are fitted to size x size; 0: they must all be as large
  int64_t channels = 0;                   // 1 or 3: pictures are converted; 0: they must all have as many
};

// The files in a folder that are called .png, .jpg or .jpeg, sorted; hidden ones do not count.
std::vector<std::filesystem::path> picture_files(const std::filesystem::path& folder);

// folder: train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-* beside them, packed by gzip or not; or train/ and
// test/ (or val/) with a folder of PNG and JPEG files for every class; or such folders themselves. Bad pictures throw
// one sentence that names the file.
ImageSet read_images(const ImageFolder& from, const std::function<void(int64_t done, int64_t all)>& on_picture = {});

}  // namespace fem
