// Classifying pictures: which pictures, which part of them is for what, how they are varied, and what learns them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fem/image_classifier.h"

namespace fem {

struct ImageDataOptions {
  std::filesystem::path folder;
  std::vector<std::string> classes;
  int64_t size = 0;
  int64_t channels = 0;
  double validation = 0.1;
  double test = 0.1;
  int64_t crop = 0;
  bool flip = false;
  double mixup = 0.0;
  double label_smoothing = 0.0;
};

template <typename Options, typename Visitor>
void visit_image_data(Options& o, Visitor&& visit) {
  visit("folder", o.folder, "IDX files (MNIST's names), or a folder of PNG and JPEG files for every class");
  visit("classes", o.classes, "names of the classes of IDX files; none: their numbers");
  visit("size", o.size, "scale and cut pictures to size x size; 0: they are all as large");
  visit("channels", o.channels, "convert pictures to 1 (grey) or 3 (colour); 0: they are all alike");
  visit("validation", o.validation, "share of the training pictures to choose by");
  visit("test", o.test, "share of the pictures to report, where the folder has no part of its own for that");
  visit("crop", o.crop, "training pictures are moved by up to so many pixels, black coming in");
  visit("flip", o.flip, "half of the training pictures are mirrored, left to right");
  visit("mixup", o.mixup, "training pictures are mixed with another, by a share of Beta(mixup, mixup); 0: not");
  visit("label_smoothing", o.label_smoothing, "share of a target that goes to all classes alike");
}

struct ImageOptions {
  ImageDataOptions data;
  ImageClassifierOptions model;  // of [model] the patch and the backbone; the rest follows from the data
};

}  // namespace fem
