#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fem/backbone.h"
#include "fem/mixer.h"

namespace fem {

inline constexpr int64_t kLargestSide = 1 << 13;  // pixels of a picture

// A model of pictures, as DeiT is one: patches and a class token through an encoder, and from the class token to the
// classes.
struct ImageClassifierOptions : BackboneOptions {
  int64_t height = 0, width = 0, channels = 0;
  int64_t patch = 0;
  std::vector<std::string> classes;
  std::vector<double> mean, deviation;  // of the channels, by which pixels from 0 to 1 are standardised
};

// Calls visit(name, field, help) for every field that the backbone has not.
template <typename Options, typename Visitor>
void visit_image_classifier_options(Options& o, Visitor&& visit) {
  visit("height", o.height, "rows of a picture");
  visit("width", o.width, "columns of a picture");
  visit("channels", o.channels, "1: grey; 3: RGB");
  visit("patch", o.patch, "pixels of a side of a patch; 0: the smallest that makes at most 64 of a picture");
  visit("classes", o.classes, "their names");
  visit("mean", o.mean, "of the channels over the training pictures, pixels from 0 to 1");
  visit("deviation", o.deviation, "of the channels over the training pictures; 1 where there is none");
}

// Throws one clear sentence unless a model can be made of the options.
void check(const ImageClassifierOptions& options);

// What is left open (0): patch, mlp_width 4 n_embd.
ImageClassifierOptions with_widths(ImageClassifierOptions options);

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> image_classifier_parameters(const ImageClassifierOptions& options);

class BoundImageClassifier;

class ImageClassifierImpl : public torch::nn::Module {
 public:
  explicit ImageClassifierImpl(const ImageClassifierOptions& options);

  // Standardised pictures [B, channels, height, width] -> logits [B, classes]. What becomes of a picture does not
  // depend on those beside it, but for rounding.
  at::Tensor forward(const at::Tensor& pictures);
  // Probabilities [B, classes] in float64 of pixels from 0 to 255, without gradients or dropout, and to the last bit
  // whatever the batch.
  at::Tensor predict(const at::Tensor& pixels);

  Trace trace(const at::Tensor& pictures);

  at::Tensor standardised(const at::Tensor& pixels) const;  // [B, channels, height, width], from 0 to 255

  const ImageClassifierOptions options;

 private:
  std::shared_ptr<const BoundImageClassifier> bound_;
};

class ImageClassifier : public torch::nn::ModuleHolder<ImageClassifierImpl> {
 public:
  using torch::nn::ModuleHolder<ImageClassifierImpl>::ModuleHolder;
  using Impl = ImageClassifierImpl;

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    return impl_->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace fem
