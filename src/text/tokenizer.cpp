#include "fem/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/checksums.h"
#include "io/json.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> tokens;
    tokens.reserve(text.size());
    for (const unsigned char byte : text) tokens.push_back(byte);
    return tokens;
  }

  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string text;
    for (const int64_t token : tokens) {
      FEM_CHECK(token >= 0 && token < vocab_size(), "tokenizer: expected tokens of 0 to ", vocab_size() - 1, ", got ",
                token);
      if (token != separator()) text += static_cast<char>(token);
    }
    return text;
  }

  int64_t vocab_size() const override { return 257; }
  int64_t separator() const override { return 256; }
  std::string fingerprint() const override { return "bytes"; }
  void save(const fs::path& folder) const override {
    write_atomically(folder / "tokenizer.json", [](std::ostream& file) { file << json{{"type", "bytes"}} << '\n'; });
  }
};

}  // namespace

std::vector<int64_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int64_t> tokens = encode(text);
  tokens.insert(tokens.begin(), separator());
  return tokens;
}

std::string Tokenizer::continuation(int64_t last, int64_t token) const {
  // After another token, because a tokenizer may drop the space before a first word.
  return decode({last, token}).substr(decode({last}).size());
}

TokenizerPtr byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

TokenizerPtr load_tokenizer(const fs::path& folder) {
  const fs::path path = folder / "tokenizer.json";
  check_file(path);
  FEM_CHECK(fs::is_regular_file(path), "tokenizer: ", path.string(),
            " cannot be read; the tokenizer is kept beside its model");
  const json description = read_json(path, "tokenizer");
  FEM_CHECK(description.is_object() && description.contains("type"), "tokenizer: ", path.string(),
            " is not a JSON object with a \"type\"");
  const json& type = description["type"];
  if (type == "bytes") return byte_tokenizer();
  FEM_CHECK(type == "sentencepiece", "tokenizer: ", path.string(),
            ": expected the type \"bytes\" or \"sentencepiece\", got ", type.dump());
  check_file(folder / "tokenizer.model");
  TokenizerPtr tokenizer = sentencepiece_tokenizer(folder / "tokenizer.model");
  const json expected = description.value("fingerprint", json());
  FEM_CHECK(expected == tokenizer->fingerprint(), "tokenizer: ", (folder / "tokenizer.model").string(), " is ",
            tokenizer->fingerprint(), ", but tokenizer.json beside it belongs to ", expected.dump(),
            "; put the model's own file back");
  return tokenizer;
}

}  // namespace fem
