// From a string to a string: a language model with its tokenizer.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fem/generate.h"
#include "fem/language_model.h"
#include "fem/text/tokenizer.h"

namespace fem {

struct TextModel {
  std::filesystem::path folder;
  LanguageModel model = nullptr;
  TokenizerPtr tokenizer;
};

// A model folder, or the newest checkpoint of a training run, with its tokenizer; checks that they fit. A vocabulary
// may be larger than the tokenizer's: what it has beyond is never predicted.
TextModel load_text_model(const std::filesystem::path& path);

struct TextOptions {
  GenerateOptions tokens;          // end: always the tokenizer's separator
  std::vector<std::string> stops;  // a text ends before any of these
};

// Told after every token of every row what it adds to the text, perhaps nothing yet: whole characters, and no beginning
// of a stop string. A row goes on while it returns true.
using OnText = std::function<bool(size_t row, const std::string& text)>;

// What follows each prompt: UTF-8, U+FFFD where the model writes none.
std::vector<std::string> generate_texts(TextModel& model, const std::vector<std::string>& prompts,
                                        const TextOptions& options = {}, const OnText& on_text = {});
std::string generate_text(TextModel& model, const std::string& prompt, const TextOptions& options = {});

}  // namespace fem
