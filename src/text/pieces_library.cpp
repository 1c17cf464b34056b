// libfem_sentencepiece.so: nothing of torch may be linked here (text/pieces.h).
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "text/pieces.h"

namespace fem {
namespace {

// The reason in a status, without the place in SentencePiece's source that found it.
std::string reason_of(const sentencepiece::util::Status& status) {
  if (status.ok()) return "";
  const std::string text = status.ToString();
  const size_t condition = text.find("] ");
  const std::string reason = condition == std::string::npos ? text : text.substr(condition + 2);
  return reason.empty() ? "it cannot be parsed" : reason;
}

class SentencePieceModel final : public PieceModel {
 public:
  std::string load(std::string_view model) override {
    return reason_of(processor_.LoadFromSerializedProto({model.data(), model.size()}));
  }
  std::string encode(std::string_view text, std::vector<int>& ids) const override {
    return reason_of(processor_.Encode({text.data(), text.size()}, &ids));
  }
  std::vector<std::string> pieces_of(std::string_view text) const override {
    return processor_.EncodeAsPieces({text.data(), text.size()});
  }
  std::string decode(int id) const override { return processor_.DecodeIds({id}); }
  std::string piece(int id) const override { return processor_.IdToPiece(id); }
  int id_of(std::string_view piece) const override { return processor_.PieceToId({piece.data(), piece.size()}); }
  int size() const override { return processor_.GetPieceSize(); }
  int begin_id() const override { return processor_.bos_id(); }
  int end_id() const override { return processor_.eos_id(); }
  bool is_control(int id) const override { return processor_.IsControl(id); }
  bool is_unknown(int id) const override { return processor_.IsUnknown(id); }
  bool is_byte(int id) const override { return processor_.IsByte(id); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

// As the trainer goes through them.
class SentenceIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit SentenceIterator(Sentences& sentences) : sentences_(sentences) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override { done_ = !sentences_.next(sentence_); }

 private:
  Sentences& sentences_;
  std::string sentence_;
  bool done_ = false;
};

std::unique_ptr<PieceModel> new_model() { return std::make_unique<SentencePieceModel>(); }

std::string train(const TrainerSettings& settings, Sentences& sentences, std::string& model) {
  SentenceIterator iterator(sentences);
  return reason_of(sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model));
}

}  // namespace
}  // namespace fem

extern "C" __attribute__((visibility("default"))) const fem::SentencePieceLibrary* fem_sentencepiece() {
  static const fem::SentencePieceLibrary library{fem::new_model, fem::train};
  return &library;
}
