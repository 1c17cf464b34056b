#include <ATen/ATen.h>

#include <cstdio>

#include "fem/text/text_model.h"
#include "inspect/subject.h"
#include "util/check.h"
#include "util/grouped.h"

namespace fem {
namespace {

// What a token adds to a text; a byte that is no character by its number.
std::string label_of(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens, size_t i) {
  if (tokens[i] == tokenizer.separator()) return "(begin)";
  const std::string bytes = i > 0 ? tokenizer.continuation(tokens[i - 1], tokens[i]) : tokenizer.decode({tokens[i]});
  if (bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) >= 0x80) {
    char number[8];
    std::snprintf(number, sizeof(number), "\\x%02x", static_cast<unsigned char>(bytes[0]));
    return number;
  }
  return bytes;
}

class TextSubject final : public Subject {
 public:
  TextSubject(const SubjectOptions& options, const std::string& text)
      : name_(options.model.string()), read_(load_text_model(options.model)) {
    read_.model = to_look_at(read_.model, read_.model->options, options.fresh);
    FEM_CHECK(options.length >= 2 && options.rows >= 1, "inspect: expected at least one row of two tokens, got ",
              options.rows, " of ", options.length);
    tokens_ = read_.tokenizer->encode_prompt(text);
    FEM_CHECK(tokens_.size() >= 2, "inspect: expected a text of at least one token, got none");
    length_ = std::min<int64_t>(options.length, static_cast<int64_t>(tokens_.size()));
    starts_ = spread(static_cast<int64_t>(tokens_.size()) - length_ + 1, options.rows);
  }

  const BackboneOptions& options() const override { return read_.model->options; }
  torch::nn::Module& model() override { return *read_.model; }
  int64_t batches() const override { return static_cast<int64_t>(starts_.size()); }
  const char* unit_of_loss() const override { return "nats a token"; }

  Trace trace(int64_t batch) override { return read_.model->trace(row(starts_[static_cast<size_t>(batch)])); }

  SummedLoss loss(int64_t batch) override {
    const at::Tensor tokens = row(starts_[static_cast<size_t>(batch)]);
    const at::Tensor nats = read_.model->surprise(tokens.slice(1, 0, -1), tokens.slice(1, 1));
    return {nats.sum().item<double>(), static_cast<double>(nats.numel())};
  }

  Shown shown() override {
    Shown shown{.trace = row_of(read_.model->trace(row(0)), 0), .kind = "text"};
    for (int64_t i = 0; i < length_; ++i)
      shown.tokens.push_back(label_of(*read_.tokenizer, tokens_, static_cast<size_t>(i)));
    const auto all = static_cast<int64_t>(tokens_.size());
    shown.title = name_;
    if (all > length_)
      shown.notes.push_back("The first " + grouped(length_) + " of " + grouped(all) +
                            " tokens are shown; --length shows more.");
    return shown;
  }

 private:
  at::Tensor row(int64_t first) const {
    return at::tensor(at::ArrayRef(tokens_.data() + first, static_cast<size_t>(length_)), at::kLong).unsqueeze(0);
  }

  std::string name_;
  TextModel read_;
  std::vector<int64_t> tokens_, starts_;
  int64_t length_ = 0;
};

}  // namespace

std::unique_ptr<Subject> text_subject(const SubjectOptions& options, const std::string& text) {
  return std::make_unique<TextSubject>(options, text);
}

}  // namespace fem
