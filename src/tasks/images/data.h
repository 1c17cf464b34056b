#pragma once

#include "data/images.h"
#include "tasks/images/options.h"

namespace fem {

// Pictures as a model learns them.
struct ImageData {
  LabelledImages train, validation, test;
};

// Throws one sentence if the pictures are not such that a model can be made for them.
ImageSet images_of(const ImageDataOptions& options,
                   const std::function<void(int64_t done, int64_t all)>& on_picture = {});

// Which picture is for what is drawn once, and is the same for every seed of a run.
ImageData image_data(const ImageDataOptions& options, const ImageSet& set);

// The model for pictures: their size and classes, and the mean and deviation of the training pictures.
ImageClassifierOptions classifier_for(const ImageOptions& options, const ImageSet& set);

}  // namespace fem
