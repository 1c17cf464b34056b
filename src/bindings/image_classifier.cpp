// Image classifiers as operators, for languages that hold the parameters themselves.
#include "models/image_classifier.h"

#include <ATen/ATen.h>

#include "bindings/library.h"
#include "bindings/task_model.h"
#include "io/image_classifier_config.h"
#include "io/json.h"
#include "models/model_folder.h"
#include "models/pixels.h"
#include "util/check.h"

namespace fem {
namespace {

TaskModelConfig<ImageClassifierOptions> parsed_image_classifier(std::string_view config) {
  const ImageClassifierOptions options =
      with_widths(image_classifier_options_from_json(parse_json(config, "image classifier options")));
  return {options, image_classifier_parameters(options)};
}

BoundImageClassifier bound_image_classifier(at::TensorList parameters, std::string_view config) {
  return {checked_config<parsed_image_classifier>("image classifier", parameters, config).options, parameters.vec()};
}

// [B, C, H, W] of any size -> [B, channels, height, width] uint8
at::Tensor pictures_for(const ImageClassifierOptions& model, const at::Tensor& pixels) {
  FEM_CHECK(pixels.dim() == 4, "picture: expected pixels in shape [B, 1 (grey) or 3 (RGB), height, width], got ",
            shape_of(pixels));
  std::vector<at::Tensor> seen;
  for (const at::Tensor& picture : pixels.unbind(0)) seen.push_back(picture_for(model, picture));
  return seen.empty() ? at::empty({0, model.channels, model.height, model.width}, at::kByte) : at::stack(seen);
}

at::Tensor classify_logits(const at::Tensor& pictures, at::TensorList parameters, std::string_view config,
                           bool training) {
  return bound_image_classifier(parameters, config).logits(pictures, training);
}

at::Tensor classify_pixels(const at::Tensor& pixels, at::TensorList parameters, std::string_view config) {
  const BoundImageClassifier model = bound_image_classifier(parameters, config);
  return model.predict(pictures_for(model.options, pixels));
}

at::Tensor standardised_pixels(const at::Tensor& pixels, std::string_view config, at::ScalarType dtype) {
  FEM_CHECK(at::isFloatingType(dtype), "picture: expected to standardise to floats, got ", dtype);
  const ImageClassifierOptions& options = parsed_once<parsed_image_classifier>(config).options;
  return standardised(options, pictures_for(options, pixels), dtype);
}

}  // namespace

void register_image_classifier(torch::Library& m) {
  m.def("classify(Tensor pictures, Tensor[] parameters, str config, bool training=False) -> Tensor", classify_logits);
  m.def("classify_pixels(Tensor pixels, Tensor[] parameters, str config) -> Tensor", classify_pixels);
  m.def("standardised_pixels(Tensor pixels, str config, ScalarType dtype) -> Tensor", standardised_pixels);
  register_task_model<parsed_image_classifier, image_classifier_config, read_image_classifier>(m, "image_classifier");
}

}  // namespace fem
