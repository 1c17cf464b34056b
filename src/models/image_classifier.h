#pragma once

#include <vector>

#include "fem/image_classifier.h"
#include "models/backbone.h"

namespace fem {

// Pixels [B, channels, height, width] from 0 to 255 as the model takes them, in its dtype.
at::Tensor standardised(const ImageClassifierOptions& options, const at::Tensor& pixels, at::ScalarType dtype);

// An image classifier as a function, bound to weights that somebody else holds.
class BoundImageClassifier {
 public:
  // weights in the order of image_classifier_parameters(options).
  BoundImageClassifier(const ImageClassifierOptions& options, const std::vector<at::Tensor>& weights);

  at::Tensor logits(const at::Tensor& pictures, bool training, Trace* trace = nullptr) const;
  at::Tensor predict(const at::Tensor& pixels) const;
  at::Tensor standardised(const at::Tensor& pixels) const;

  const ImageClassifierOptions options;

 private:
  at::Tensor patches_of(const at::Tensor& pictures) const;

  at::Tensor embedding_, embedding_bias_, class_token_, position_, head_, head_bias_;
  BoundBackbone backbone_;
};

}  // namespace fem
