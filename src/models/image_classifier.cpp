#include "models/image_classifier.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "fem/ops/project.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kBeforeBackbone = 4, kAfterBackbone = 2;  // parameters

int64_t patches_in(const ImageClassifierOptions& o) { return (o.height / o.patch) * (o.width / o.patch); }

int64_t patch_for(int64_t height, int64_t width) {
  constexpr int64_t kMostPatches = 64;
  for (int64_t side = 1; side < std::min(height, width); ++side)
    if (height % side == 0 && width % side == 0 && (height / side) * (width / side) <= kMostPatches) return side;
  return std::min(height, width);
}

at::Tensor by_channel(const std::vector<double>& values, at::ScalarType dtype) {
  return at::tensor(values, at::kDouble).to(dtype).view({-1, 1, 1});
}

}  // namespace

ImageClassifierOptions with_widths(ImageClassifierOptions o) {
  constexpr int64_t kHidden = 4;
  if (o.patch == 0) o.patch = patch_for(o.height, o.width);
  if (o.mlp_width == 0) o.mlp_width = kHidden * o.n_embd;
  o.mixer.n_embd = o.n_embd;
  o.mixer.n_head = o.n_head;
  return o;
}

void check(const ImageClassifierOptions& o) {
  for (const auto& [name, value] : {std::pair{"height", o.height}, {"width", o.width}, {"patch", o.patch}})
    FEM_CHECK(value >= 1 && value <= kLargestSide, "image classifier: expected ", name, " from 1 to ", kLargestSide,
              " pixels, got ", value);
  FEM_CHECK(o.channels == 1 || o.channels == 3, "image classifier: expected 1 channel (grey) or 3 (RGB), got ",
            o.channels);
  FEM_CHECK(o.height % o.patch == 0 && o.width % o.patch == 0,
            "image classifier: expected pictures of whole patches, got ", o.width, " x ", o.height,
            " pixels and patches of ", o.patch, "; change model.patch, or scale the pictures with --size");
  FEM_CHECK(o.classes.size() >= 2, "image classifier: expected at least two classes, got ", o.classes.size());
  FEM_CHECK(std::set<std::string>(o.classes.begin(), o.classes.end()).size() == o.classes.size(),
            "image classifier: expected every class once");
  FEM_CHECK(static_cast<int64_t>(o.mean.size()) == o.channels && static_cast<int64_t>(o.deviation.size()) == o.channels,
            "image classifier: expected a mean and a deviation for each of the ", o.channels, " channels, got ",
            o.mean.size(), " and ", o.deviation.size());
  for (size_t i = 0; i < o.mean.size(); ++i)
    FEM_CHECK(std::isfinite(o.mean[i]) && std::isfinite(o.deviation[i]) && o.deviation[i] > 0,
              "image classifier: expected a finite mean and a positive deviation of channel ", i + 1, ", got ",
              o.mean[i], " and ", o.deviation[i]);
  FEM_CHECK(!o.mixer.causal,
            "image classifier: it is an encoder, whose patches see each other; set model.mixer.causal to false");
  check_backbone(o, "image classifier");
}

std::vector<ParameterSpec> image_classifier_parameters(const ImageClassifierOptions& o) {
  check(o);
  using Init = ParameterSpec::Init;
  std::vector<ParameterSpec> specs;
  declare_linear(specs, "embedding", o.channels * o.patch * o.patch, o.n_embd, /*bias=*/true);
  specs.push_back({"class_token", {o.n_embd}, Init::kNormal, kLinearDeviation});
  specs.push_back({"position", {1 + patches_in(o), o.n_embd}, Init::kNormal, kLinearDeviation});
  for (ParameterSpec& spec : backbone_parameters(o)) specs.push_back(std::move(spec));
  declare_linear(specs, "head", o.n_embd, static_cast<int64_t>(o.classes.size()), /*bias=*/true);
  return specs;
}

BoundImageClassifier::BoundImageClassifier(const ImageClassifierOptions& given, const std::vector<at::Tensor>& w)
    : options(given),
      embedding_(w[0]),
      embedding_bias_(w[1]),
      class_token_(w[2]),
      position_(w[3]),
      head_(w[w.size() - 2]),
      head_bias_(w.back()),
      backbone_(given, {w.begin() + kBeforeBackbone, w.end() - kAfterBackbone}) {}

// [B, C, H, W] -> [B, patches, C patch patch], row by row.
at::Tensor BoundImageClassifier::patches_of(const at::Tensor& pictures) const {
  const int64_t side = options.patch;
  const at::Tensor grid = pictures.unfold(2, side, side).unfold(3, side, side);  // [B, C, h, w, side, side]
  return grid.permute({0, 2, 3, 1, 4, 5}).flatten(3).flatten(1, 2).contiguous();
}

at::Tensor BoundImageClassifier::logits(const at::Tensor& pictures, bool training, Trace* trace) const {
  FEM_CHECK(pictures.dim() == 4 && pictures.size(1) == options.channels && pictures.size(2) == options.height &&
                pictures.size(3) == options.width,
            "image classifier: expected pictures of shape [B, channels=", options.channels, ", height=", options.height,
            ", width=", options.width, "], got ", shape_of(pictures));
  FEM_CHECK(pictures.scalar_type() == head_.scalar_type(), "image classifier: expected pictures as ",
            head_.scalar_type(), " like the weights, got ", pictures.scalar_type(), "; see standardised()");
  const at::Tensor patches = project(patches_of(pictures), {embedding_}, {embedding_bias_})[0];
  const at::Tensor first = class_token_.to(patches.scalar_type()).expand({patches.size(0), 1, -1});
  const at::Tensor tokens = at::cat({first, patches}, 1) + position_;
  const at::Tensor embedded = at::dropout(tokens, options.dropout, training);
  if (trace) trace->emplace_back("embedding", embedded);
  const at::Tensor hidden = backbone_(embedded, {.training = training, .trace = trace});
  return project(hidden.select(1, 0).contiguous(), {head_}, {head_bias_})[0];
}

at::Tensor standardised(const ImageClassifierOptions& o, const at::Tensor& pixels, at::ScalarType dtype) {
  constexpr double kWhite = 255;
  return (pixels.to(dtype) / kWhite - by_channel(o.mean, dtype)) / by_channel(o.deviation, dtype);
}

at::Tensor BoundImageClassifier::standardised(const at::Tensor& pixels) const {
  return fem::standardised(options, pixels, head_.scalar_type());
}

at::Tensor BoundImageClassifier::predict(const at::Tensor& pixels) const {
  const at::NoGradGuard no_grad;
  // One by one: products of few rows are rounded otherwise than those of many.
  std::vector<at::Tensor> found;
  for (int64_t i = 0; i < pixels.size(0); ++i)
    found.push_back(logits(standardised(pixels.slice(0, i, i + 1)), /*training=*/false).to(at::kDouble).softmax(1));
  return found.empty() ? at::zeros({0, static_cast<int64_t>(options.classes.size())}, at::kDouble) : at::cat(found);
}

ImageClassifierImpl::ImageClassifierImpl(const ImageClassifierOptions& given)
    : options(with_widths(given)),
      bound_(std::make_shared<BoundImageClassifier>(
          options, register_parameters(*this, image_classifier_parameters(options)))) {}

at::Tensor ImageClassifierImpl::forward(const at::Tensor& pictures) { return bound_->logits(pictures, is_training()); }

at::Tensor ImageClassifierImpl::predict(const at::Tensor& pixels) { return bound_->predict(pixels); }

at::Tensor ImageClassifierImpl::standardised(const at::Tensor& pixels) const { return bound_->standardised(pixels); }

Trace ImageClassifierImpl::trace(const at::Tensor& pictures) {
  Trace made;
  made.emplace_back("logits", bound_->logits(pictures, is_training(), &made));
  return made;
}

}  // namespace fem
