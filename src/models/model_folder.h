#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "fem/io/model_folder.h"

namespace fem {

// What save_language_model wrote: every parameter of the options, and nothing else. The sizes are compared with the
// header of the weights before anything is allocated.
struct LanguageModelFile {
  LanguageModelOptions options;
  std::map<std::string, at::Tensor> parameters;
};

LanguageModelFile read_language_model(const std::filesystem::path& folder);

// The same of a forecaster.
struct ForecasterFile {
  ForecasterOptions options;
  std::map<std::string, at::Tensor> parameters;
};

ForecasterFile read_forecaster(const std::filesystem::path& folder);

// And of an image classifier.
struct ImageClassifierFile {
  ImageClassifierOptions options;
  std::map<std::string, at::Tensor> parameters;
};

ImageClassifierFile read_image_classifier(const std::filesystem::path& folder);

}  // namespace fem
