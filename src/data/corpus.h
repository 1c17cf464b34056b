#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/token_stream.h"
#include "fem/text/tokenizer.h"

namespace fem {

struct CorpusOptions {
  std::vector<std::string> train;       // files, folders and globs of UTF-8 text; .jsonl: the "text" of every line
  std::vector<std::string> validation;  // the same; none: the last validation_fraction of train
  double validation_fraction = 0.1;
  std::string tokenizer = "bytes";   // bytes, a SentencePiece .model, or sentencepiece:N to train one of N pieces
  std::filesystem::path cache = {};  // where token files are kept between runs; none: user_cache_folder()

  bool trains_tokenizer() const;
};

template <typename Options, typename Visitor>
void visit_corpus_options(Options& o, Visitor&& visit) {
  visit("train", o.train, "files, folders and globs of UTF-8 text; .jsonl: the \"text\" of every line");
  visit("validation", o.validation, "the same; none: the last validation_fraction of train");
  visit("validation_fraction", o.validation_fraction, "share of the training text kept for validation");
  visit("tokenizer", o.tokenizer, "bytes, a SentencePiece .model, or sentencepiece:N to train one of N pieces");
  visit("cache", o.cache, "folder of token files, kept between runs; \"\": ~/.cache/fem (XDG_CACHE_HOME)");
}

struct Corpus {
  TokenizerPtr tokenizer;
  TokenStream train, validation;
  // The files that were read; those of validation are none if it is the end of the training text.
  std::vector<TextSource> train_sources, validation_sources;
};

// Tokenizes what is not in the cache yet, in parallel and with progress; a folder of the cache appears whole or not at
// all. The key is the tokenizer, the split and the files' names, sizes and times. A given tokenizer (a run that goes
// on) overrides the option. Without training files only validation is made; a file of both is validation only.
Corpus prepare_corpus(const CorpusOptions& options, TokenizerPtr tokenizer = nullptr);

}  // namespace fem
