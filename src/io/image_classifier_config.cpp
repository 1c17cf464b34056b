#include "io/image_classifier_config.h"

#include "io/backbone_model_config.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kImageClassifierType = "fem_image_classifier";

const auto kVisitImageClassifier = [](auto& options, auto&& visit) { visit_image_classifier_options(options, visit); };

}  // namespace

json to_json(const ImageClassifierOptions& options) { return backbone_model_to_json(options, kVisitImageClassifier); }

ImageClassifierOptions image_classifier_options_from_json(const json& in) {
  return backbone_model_from_json<ImageClassifierOptions>(in, "image classifier options", kVisitImageClassifier);
}

json image_classifier_config(const ImageClassifierOptions& options) {
  json config = to_json(options);
  config["model_type"] = kImageClassifierType;
  return config;
}

ImageClassifierOptions options_of_image_classifier_config(json config) {
  return image_classifier_options_from_json(
      fields_of_config(std::move(config), kImageClassifierType,
                       {"n_embd", "n_head", "n_layer", "mlp_width", "height", "width", "channels", "patch", "classes",
                        "mean", "deviation"}));
}

}  // namespace fem
