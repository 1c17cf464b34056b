// SentencePiece, which lies in a library of its own, libfem_sentencepiece.so: its flags have names that torch's have,
// too (FLAGS_minloglevel), at another size, and linked beside torch the one is written over the other.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fem {

class PieceModel {
 public:
  virtual ~PieceModel() = default;

  // Both: why it cannot be done, empty if it was.
  virtual std::string load(std::string_view model) = 0;
  virtual std::string encode(std::string_view text, std::vector<int>& ids) const = 0;

  virtual std::vector<std::string> pieces_of(std::string_view text) const = 0;
  virtual std::string decode(int id) const = 0;
  virtual std::string piece(int id) const = 0;
  virtual int id_of(std::string_view piece) const = 0;
  virtual int size() const = 0;
  virtual int begin_id() const = 0;  // of a text; negative: there is none
  virtual int end_id() const = 0;
  virtual bool is_control(int id) const = 0;
  virtual bool is_unknown(int id) const = 0;
  virtual bool is_byte(int id) const = 0;
};

// The sentences to train on.
class Sentences {
 public:
  virtual ~Sentences() = default;
  virtual bool next(std::string& sentence) = 0;  // false: there are no more
};

using TrainerSettings = std::unordered_map<std::string, std::string>;

struct SentencePieceLibrary {
  std::unique_ptr<PieceModel> (*new_model)();
  // Why it cannot be done, empty if it was.
  std::string (*train)(const TrainerSettings& settings, Sentences& sentences, std::string& model);
};

// Opened by the first call; throws one sentence if it cannot be.
const SentencePieceLibrary& sentencepiece_library();

}  // namespace fem
