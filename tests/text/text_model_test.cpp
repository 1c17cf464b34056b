#include "fem/text/text_model.h"

#include <gtest/gtest.h>

#include "fem/io/model_folder.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "text/bigrams.h"

namespace fem {
namespace {

using testing::every_mixer;
using testing::fails_with;
using testing::kSeparator;
using testing::kVocabulary;
using testing::random_model;
using testing::reciting_model;
using testing::TemporaryFolder;

class TextModelFolder : public TemporaryFolder {};

TEST_F(TextModelFolder, IsAModelWithItsTokenizer) {
  EXPECT_TRUE(fails_with("absent is none", [&] { load_text_model(folder / "absent"); }));
  save_language_model(folder, random_model(every_mixer()[0], kVocabulary));
  EXPECT_TRUE(fails_with("tokenizer", [&] { load_text_model(folder); }));
  byte_tokenizer()->save(folder);
  const TextModel trained = load_text_model(folder);
  EXPECT_EQ(trained.model->options.vocab_size, kVocabulary);
  EXPECT_EQ(trained.tokenizer->fingerprint(), "bytes");
  save_language_model(folder, random_model(every_mixer()[0], 100));
  EXPECT_TRUE(fails_with("knows 257 tokens, but the model 100", [&] { load_text_model(folder); }));
}

// Says the text and ends; none of its bytes may occur twice.
TextModel reciting(const std::string& text) {
  TextModel model{{}, reciting_model(text), byte_tokenizer()};
  const at::NoGradGuard no_gradients;
  at::Tensor head = model.model->named_parameters()["head.weight"];
  head[kSeparator][static_cast<unsigned char>(text.back())] = 5;
  return model;
}

TEST(GenerateTexts, ContinuesEachPromptUpToTheSeparator) {
  TextModel model = reciting("The quick");
  const TextOptions greedy{{.temperature = 0}};
  EXPECT_EQ(generate_text(model, "T", greedy), "he quick");
  EXPECT_EQ(generate_texts(model, {"The q", "Th", "k"}, greedy), (std::vector<std::string>{"uick", "e quick", ""}));
  EXPECT_EQ(generate_text(model, "T", {{.max_tokens = 3, .temperature = 0}}), "he ");
  EXPECT_TRUE(generate_texts(model, {}, greedy).empty());
}

TEST(GenerateTexts, TellsTheTextAsItIsMade) {
  TextModel model = reciting("The quick");
  std::string told;
  const OnText add = [&](size_t row, const std::string& text) {
    told += std::to_string(row) + text + "|";
    return told.find('u') == std::string::npos;
  };
  const auto texts = generate_texts(model, {"The q", "Th"}, {{.temperature = 0}, {" qu"}}, add);
  EXPECT_EQ(told, "0u|1e|") << "no text was wanted any more";
  EXPECT_EQ(texts, (std::vector<std::string>{"u", "e"}));
  told.clear();
  EXPECT_EQ(generate_texts(model, {"T"}, {{.temperature = 0}, {" qx", "ic"}}, add).front(), "he qu");
  EXPECT_EQ(told, "0h|0e|0|0|0 qu|") << "what may become a stop string is held back";
}

TEST(GenerateTexts, WhatIsHeldBackAtTheEndIsText) {
  TextModel model = reciting("The quick");
  std::string told;
  const OnText add = [&](size_t, const std::string& text) {
    told += text + "|";
    return true;
  };
  const TextOptions options{{.max_tokens = 4, .temperature = 0}, {" quack"}};
  EXPECT_EQ(generate_texts(model, {"T"}, options, add).front(), "he q");
  EXPECT_EQ(told, "h|e|| q|");
  EXPECT_TRUE(fails_with("generate: expected stop strings that are not empty, got an empty one",
                         [&] { generate_texts(model, {"T"}, {{}, {""}}); }));
}

}  // namespace
}  // namespace fem
