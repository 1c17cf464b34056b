// Corpora of a few small files, in a folder of their own.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem::testing {

namespace fs = std::filesystem;

class CorpusOf : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    fs::create_directories(text());
  }
  fs::path text() const { return folder / "text"; }
  fs::path cache() const { return folder / "cache"; }
  void add(const std::string& name, const std::string& content) {
    fs::create_directories((text() / name).parent_path());
    write(text() / name, content);
  }
  CorpusOptions options(std::vector<std::string> train, std::vector<std::string> validation = {}) const {
    for (auto* paths : {&train, &validation})
      for (std::string& path : *paths) path = (text() / path).string();
    return {.train = train, .validation = validation, .cache = cache()};
  }
  ::testing::AssertionResult is_refused(const CorpusOptions& options, const std::string& sentence) {
    const auto refused = fails_with(sentence, [&] { prepare_corpus(options); });
    if (!refused || !fs::exists(cache())) return refused;
    for (const auto& entry : fs::directory_iterator(cache()))
      if (entry.path().filename() != ".lock")
        return ::testing::AssertionFailure() << entry.path() << " was left in the cache";
    return refused;
  }
  // The only folder of the cache.
  fs::path made() const { return only_folder_of(cache()); }
  static fs::path only_folder_of(const fs::path& cache) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(cache))
      if (entry.path().filename() != ".lock") folders.push_back(entry.path());
    EXPECT_EQ(folders.size(), 1u);
    return folders.empty() ? fs::path() : folders.front();
  }
  static std::string text_of(const Tokenizer& tokenizer, const TokenStream& stream) {
    const at::Tensor tokens = stream.read(0, stream.size());
    std::string text;
    for (int64_t i = 0; i < tokens.numel(); ++i) {
      const auto token = tokens[i].item<int64_t>();
      text += token == tokenizer.separator() ? "|" : tokenizer.decode({token});
    }
    return text;
  }
  std::string train_text(const CorpusOptions& options) {
    const Corpus corpus = prepare_corpus(options);
    return text_of(*corpus.tokenizer, corpus.train);
  }
};

inline std::string lines(int count, const std::string& word = "line") {
  std::string text;
  for (int i = 0; i < count; ++i) text += word + " " + std::to_string(i) + "\n";
  return text;
}

}  // namespace fem::testing
