#pragma once

#include <filesystem>

#include "data/tokenizer.h"
#include "fem/language_model.h"

namespace fem {

struct TrainedModel {
  std::filesystem::path folder;
  LanguageModel model = nullptr;
  TokenizerPtr tokenizer;
};

// A model folder, or the newest checkpoint of a training run, with its tokenizer; checks that they fit.
TrainedModel load_trained_model(const std::filesystem::path& path);

}  // namespace fem
