#pragma once

#include <filesystem>

#include "fem/forecaster.h"
#include "fem/image_classifier.h"
#include "fem/language_model.h"

namespace fem {

// A model folder: config.json (the options) and model.safetensors (the parameters). The fem command keeps the tokenizer
// in the same folder. C++ and Python write and read the same files. What a checkpoint's checksums know is checked
// before it is read.
void save_language_model(const std::filesystem::path& folder, const LanguageModel& model);

LanguageModel load_language_model(const std::filesystem::path& folder);
LanguageModelOptions load_language_model_options(const std::filesystem::path& folder);

void save_forecaster(const std::filesystem::path& folder, const Forecaster& model);
Forecaster load_forecaster(const std::filesystem::path& folder);
ForecasterOptions load_forecaster_options(const std::filesystem::path& folder);

void save_image_classifier(const std::filesystem::path& folder, const ImageClassifier& model);
ImageClassifier load_image_classifier(const std::filesystem::path& folder);
ImageClassifierOptions load_image_classifier_options(const std::filesystem::path& folder);

// The newest checkpoint if folder is a training run (it has checkpoints/step-N), else folder itself. A folder that is
// both is refused.
std::filesystem::path model_folder(const std::filesystem::path& folder);

// The same, but the best checkpoint of a run that keeps one.
std::filesystem::path best_model_folder(const std::filesystem::path& folder);

// Throws if a model must not be saved there: the folder is a training run's or a checkpoint's.
void check_free_for_model(const std::filesystem::path& folder);

}  // namespace fem
