#pragma once

#include <filesystem>

#include "fem/language_model.h"

namespace fem {

// A model folder: config.json (the options) and model.safetensors (the parameters). The fem command keeps the tokenizer
// in the same folder. C++ and Python write and read the same files.
void save_language_model(const std::filesystem::path& folder, const LanguageModel& model);

LanguageModel load_language_model(const std::filesystem::path& folder);
LanguageModelOptions load_language_model_options(const std::filesystem::path& folder);

// The newest checkpoint if folder is a training run (it has checkpoints/), else folder itself.
std::filesystem::path model_folder(const std::filesystem::path& folder);

}  // namespace fem
