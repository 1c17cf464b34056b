#include "data/corpus.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "data/cache_folder.h"
#include "data/documents.h"
#include "data/shards.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/read_file.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/hash.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainedTokenizer = "sentencepiece:";
constexpr const char* kDescription = "corpus.json";
constexpr double kTokenizerSampleBytes = 20e6;
constexpr size_t kSampleBlockBytes = 65536;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

struct Sources {
  TextFiles train, validation;
};

Sources find_sources(const CorpusOptions& options) {
  Sources sources{find_text_files(options.train, options.cache), find_text_files(options.validation, options.cache)};
  // A validation file inside a training folder is not trained on.
  std::set<fs::path> held_out;
  for (const TextFile& file : sources.validation.files) held_out.insert(file.path);
  std::erase_if(sources.train.files, [&](const TextFile& file) { return held_out.contains(file.path); });
  FEM_CHECK(options.train.empty() || !sources.train.files.empty(),
            "corpus: every training file is also a validation file, which is not trained on; give other files");
  return sources;
}

std::string key_of(const CorpusOptions& options, const Sources& sources, const std::string& tokenizer) {
  std::ostringstream text;
  text.precision(17);
  text << "corpus 2\n" << tokenizer << '\n';
  if (options.validation.empty()) text << "validation " << options.validation_fraction << '\n';
  for (const TextFiles* set : {&sources.train, &sources.validation}) {
    for (const TextFile& file : set->files)
      text << file.path << ' ' << file.name << ' ' << file.bytes << ' ' << file.modified << ' ' << file.named << '\n';
    text << "end\n";
  }
  return hex(fnv1a(text.str()));
}

// N of sentencepiece:N, nothing for other tokenizers.
std::optional<int64_t> pieces_to_train(const std::string& tokenizer) {
  if (!tokenizer.starts_with(kTrainedTokenizer)) return std::nullopt;
  const std::string number = tokenizer.substr(std::string(kTrainedTokenizer).size());
  int64_t pieces = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), pieces);
  FEM_CHECK(error == std::errc() && end == number.data() + number.size() && pieces > 0 && pieces <= 1'000'000,
            "corpus: expected a tokenizer as sentencepiece:N with N from 1 to 1,000,000 pieces, got ", tokenizer);
  return pieces;
}

TokenizerPtr ready_tokenizer(const std::string& tokenizer) {
  if (tokenizer == "bytes") return byte_tokenizer();
  FEM_CHECK(is_there(tokenizer),
            "corpus: expected the tokenizer as bytes, sentencepiece:N or a SentencePiece file, got ", tokenizer,
            ", which is not there");
  return sentencepiece_tokenizer(tokenizer);
}

TokenizerPtr train_tokenizer(const std::vector<TextPart>& parts, int64_t pieces) {
  double total = 0;
  for (const TextPart& part : parts) total += static_cast<double>(part.bytes());
  const double share = std::min(kTokenizerSampleBytes / total, 1.0);
  std::vector<std::string> sample;
  double owed = 0;  // blocks that should have been taken by now and were not
  for (const TextPart& part : parts) {
    for_each_document(part, [&](std::string_view text, bool) {
      while (!text.empty()) {
        const size_t size = text.size() <= kSampleBlockBytes ? text.size() : cut_near(text, kSampleBlockBytes);
        owed += share;
        if (owed >= 1 || share == 1.0) {
          sample.emplace_back(text.substr(0, size));
          owed -= 1;
        }
        text.remove_prefix(size);
      }
    });
  }
  std::fprintf(stderr, "training a tokenizer of %s pieces on %s MB\n", grouped(pieces).c_str(),
               fixed(total * share / 1e6, 1).c_str());
  return train_sentencepiece(sample, pieces);
}

void report_skipped(int64_t hidden, int64_t not_text) {
  if (hidden + not_text > 0)
    std::fprintf(stderr, "corpus: passed over %s hidden files and folders and %s files that are not UTF-8 text\n",
                 grouped(hidden).c_str(), grouped(not_text).c_str());
}

nlohmann::ordered_json description_of(const StreamPlan& plan, const StreamSize& size) {
  std::vector<std::string> files;
  for (const TextPart& part : plan.parts)
    if (files.empty() || files.back() != part.path) files.push_back(part.path.string());
  return {{"tokens", size.tokens}, {"bytes", size.bytes}, {"files", files}};
}

nlohmann::ordered_json json_of(const std::vector<TextSource>& sources) {
  auto list = nlohmann::ordered_json::array();
  for (const TextSource& source : sources) list.push_back({{"name", source.name}, {"checksum", source.checksum}});
  return list;
}

void make_corpus(const CorpusOptions& options, const Sources& sources, TokenizerPtr tokenizer, const fs::path& folder) {
  TextParts train = cut_into_parts(sources.train.files), validation = cut_into_parts(sources.validation.files);
  report_skipped(sources.train.hidden + sources.validation.hidden, train.skipped + validation.skipped);
  FEM_CHECK(options.train.empty() || !train.parts.empty(), "corpus: none of the ", sources.train.files.size(),
            " training files holds UTF-8 text");
  if (options.validation.empty())
    std::tie(train.parts, validation.parts) = split_parts(train.parts, options.validation_fraction);
  if (!tokenizer) tokenizer = train_tokenizer(train.parts, *pieces_to_train(options.tokenizer));

  // In the order of the text, of which the first bad line is told.
  std::vector<StreamPlan> plans;
  if (!options.train.empty()) plans.push_back({train.parts, folder / "train"});
  plans.push_back({validation.parts, folder / "validation"});
  for (const StreamPlan& plan : plans) fs::create_directory(plan.folder);
  const std::vector<StreamSize> sizes = write_token_streams(plans, *tokenizer);
  for (size_t i = 0; i < sizes.size(); ++i)
    FEM_CHECK(sizes[i].tokens >= 2, "corpus: expected at least 2 tokens of ",
              i + 1 == sizes.size() ? "validation" : "training", " text, got ", sizes[i].tokens, "; give more text",
              options.validation.empty() ? " or another validation_fraction" : "");
  tokenizer->save(folder);

  nlohmann::ordered_json description{
      {"tokenizer", tokenizer->fingerprint()},
      {"sources", {{"train", json_of(train.sources)}, {"validation", json_of(validation.sources)}}}};
  for (size_t i = 0; i < plans.size(); ++i)
    description[plans[i].folder.filename()] = description_of(plans[i], sizes[i]);
  const std::string text = description.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  write_atomically(folder / kDescription, [&](std::ostream& file) { file << text << '\n'; });
}

void read_sources(const fs::path& folder, Corpus& corpus) {
  const fs::path path = folder / kDescription;
  const auto description = json_if_whole(read_file(path, "token files"));
  const auto list_of = [&](const char* name) {
    const nlohmann::json::json_pointer place = nlohmann::json::json_pointer("/sources") / name;
    return description && description->contains(place) ? description->at(place) : nlohmann::json();
  };
  for (auto [name, sources] : {std::pair{"train", &corpus.train_sources}, {"validation", &corpus.validation_sources}}) {
    const nlohmann::json list = list_of(name);
    bool whole = list.is_array();
    for (const nlohmann::json& source : list) {
      const auto text = [&](const char* field) {
        const bool there = source.contains(field) && source[field].is_string();
        whole = whole && there;
        return there ? source[field].get<std::string>() : std::string();
      };
      sources->push_back({text("name"), text("checksum")});
    }
    FEM_CHECK(whole, "token files: ", path.string(), " is damaged; delete the folder ", folder.string(),
              ", it is made again");
  }
}

TokenizerPtr cached_tokenizer(const fs::path& folder) {
  try {
    return load_tokenizer(folder);
  } catch (const c10::Error& error) {
    FEM_CHECK(false, error.what_without_backtrace(), "; delete the folder ", folder.string(), ", it is made again");
  }
}

Corpus open_corpus(const CorpusOptions& options, const fs::path& folder, const TokenizerPtr& tokenizer) {
  Corpus corpus;
  corpus.tokenizer = tokenizer ? tokenizer : cached_tokenizer(folder);
  const std::string fingerprint = corpus.tokenizer->fingerprint();
  if (!options.train.empty()) corpus.train = TokenStream::open(folder / "train", fingerprint);
  corpus.validation = TokenStream::open(folder / "validation", fingerprint);
  read_sources(folder, corpus);
  return corpus;
}

void make_once(const CorpusOptions& options, const Sources& sources, const TokenizerPtr& tokenizer,
               const std::string& tokenizer_name, const fs::path& folder) {
  const MakerLock lock(folder);
  if (is_there(folder)) return;  // another process was first
  NewFolder made(folder);
  make_corpus(options, sources, tokenizer, made.path());
  FEM_CHECK(key_of(options, find_sources(options), tokenizer_name) == folder.filename(),
            "corpus: the text files changed while they were read; start again");
  made.publish();
}

}  // namespace

bool CorpusOptions::trains_tokenizer() const { return tokenizer.starts_with(kTrainedTokenizer); }

Corpus prepare_corpus(const CorpusOptions& given, TokenizerPtr tokenizer) {
  CorpusOptions options = given;
  FEM_CHECK(!options.train.empty() || !options.validation.empty(),
            "corpus: expected files of UTF-8 text, got none; name files, folders or patterns");
  FEM_CHECK(!options.validation.empty() || (options.validation_fraction > 0 && options.validation_fraction < 1),
            "corpus: expected a validation_fraction between 0 and 1, got ", options.validation_fraction);
  const std::optional<int64_t> pieces = pieces_to_train(options.tokenizer);
  if (!tokenizer && !pieces) tokenizer = ready_tokenizer(options.tokenizer);
  FEM_CHECK(tokenizer || !options.train.empty(), "corpus: a tokenizer is trained on training files, got none");

  if (options.cache.empty()) options.cache = user_cache_folder();
  const Sources sources = find_sources(options);
  std::string name = pieces ? options.tokenizer : tokenizer->fingerprint();
  fs::path folder = options.cache / key_of(options, sources, name);
  // A run that goes on brings the tokenizer it once trained.
  if (pieces && tokenizer &&
      !(is_there(folder) && cached_tokenizer(folder)->fingerprint() == tokenizer->fingerprint())) {
    name = tokenizer->fingerprint();
    folder = options.cache / key_of(options, sources, name);
  }
  if (!is_there(folder)) make_once(options, sources, tokenizer, name, folder);
  return open_corpus(options, folder, tokenizer);
}

}  // namespace fem
