// How good a classifier of pictures is.
#pragma once

#include <functional>
#include <utility>

#include "data/images.h"
#include "fem/image_classifier.h"

namespace fem {

struct ClassificationScore {
  at::Tensor confusion;  // [classes, classes] int64: pictures of a class (row) that were taken for a class (column)
  double nats = 0;       // summed over the pictures

  int64_t pictures() const;
  int64_t hits() const;
  double accuracy() const;
  double loss() const;
};

struct ClassificationOptions {
  int64_t batch = 64;                                            // pictures of one call
  int64_t share = 0, shares = 1;                                 // only every shares-th batch, for several processes
  std::function<void(int64_t done, int64_t all)> on_batch = {};  // what it throws ends the reading
};

ClassificationScore score_images(ImageClassifier& model, const LabelledImages& images,
                                 const ClassificationOptions& options);

}  // namespace fem
