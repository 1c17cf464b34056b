#include "fem/text/text_model.h"

#include <gtest/gtest.h>

#include "fem/io/model_folder.h"
#include "fem/text/likelihood.h"
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

// A model of 300 tokens of which bytes use 257, and the same without the others.
std::pair<LanguageModel, LanguageModel> with_and_without_spare_tokens(const testing::MixerChoice& choice) {
  LanguageModel large = random_model(choice, 300), small = random_model(choice, kVocabulary);
  const at::NoGradGuard no_gradients;
  const auto from = large->named_parameters();
  for (const auto& parameter : small->named_parameters())
    at::Tensor(parameter.value()).copy_(from[parameter.key()].narrow(0, 0, parameter.value().size(0)));
  for (const char* name : {"embedding.weight", "head.weight"})
    at::Tensor(from[name]).slice(0, kVocabulary).fill_(1e3);  // would always be the likeliest, or the least likely
  return {large, small};
}

TEST_F(TextModelFolder, WhatAVocabularyHasBeyondTheTokenizersIsNeverPredicted) {
  for (const testing::MixerChoice& choice : every_mixer()) {
    SCOPED_TRACE(testing::name_of(choice));
    const auto [large, small] = with_and_without_spare_tokens(choice);
    std::vector<TextModel> models;
    for (const auto& [name, model] : {std::pair{"large", large}, {"small", small}}) {
      save_language_model(folder / name, model);
      byte_tokenizer()->save(folder / name);
      models.push_back(load_text_model(folder / name));
    }
    EXPECT_EQ(models[0].model->options.vocab_size, 300);
    EXPECT_EQ(models[0].model->tokens(), kVocabulary);
    std::vector<std::vector<std::string>> texts;
    std::vector<Likelihood> scores;
    std::vector<at::Tensor> nats;
    for (TextModel& model : models) {
      const TextOptions options{{.max_tokens = 40, .temperature = 1.5, .repetition_penalty = 1.2}};
      texts.push_back(generate_texts(model, {"a", "long prompt"}, options));
      scores.push_back(likelihoods(model.model, *model.tokenizer, {{"some ", "text"}}, 64).front());
      const at::Tensor tokens = at::arange(20).unsqueeze(0);
      nats.push_back(model.model->surprise(tokens, tokens.roll(-1, 1)));
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(scores[0].log_probability, scores[1].log_probability);
    EXPECT_EQ(scores[0].greedy, scores[1].greedy);
    EXPECT_TRUE(at::equal(nats[0], nats[1]));
    EXPECT_TRUE(
        fails_with("expected tokens from 0 to 256, got 257", [&] { models[0].model->forward(at::full({1, 1}, 257)); }));
  }
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
