// A trained model and something to show it: a text, a table, pictures. What looks inside knows no more of either.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fem/inspect.h"
#include "io/jsonl.h"

namespace fem {

// One sequence that the page shows, token by token.
struct Shown {
  Trace trace;       // of one row
  std::string kind;  // text, series or image
  std::string title;
  std::vector<std::string> tokens;  // their labels
  Json grid;                        // of a picture: rows and columns of patches, and the token of the first
  at::Tensor picture;               // [H, W, 3] uint8, of a picture
  std::vector<std::string> notes;
};

struct SummedLoss {
  double sum = 0, count = 0;
};

class Subject {
 public:
  virtual ~Subject() = default;

  virtual const BackboneOptions& options() const = 0;
  virtual torch::nn::Module& model() = 0;  // in float64, evaluating

  // What statistics are taken over, some rows at a time.
  virtual int64_t batches() const = 0;
  virtual Trace trace(int64_t batch) = 0;
  virtual SummedLoss loss(int64_t batch) = 0;
  virtual const char* unit_of_loss() const = 0;  // "nats a token"

  virtual Shown shown() = 0;
};

// How much is read.
struct SubjectOptions {
  std::filesystem::path model;
  int64_t rows = 8;      // texts, windows or pictures that statistics are taken over
  int64_t length = 256;  // tokens of a text
  bool fresh = false;    // the model as it starts, untrained
};

std::unique_ptr<Subject> text_subject(const SubjectOptions& options, const std::string& text);
// csv: none, the table it was trained on; target: none, the first.
std::unique_ptr<Subject> series_subject(const SubjectOptions& options, const std::filesystem::path& csv,
                                        const std::string& target);
// pictures: a file to show, or a folder as of fem classify, of which the first is shown; none: what it was trained on.
std::unique_ptr<Subject> picture_subject(const SubjectOptions& options, const std::filesystem::path& pictures);

// A run of the argmax task, which makes its examples itself; none if it is another's.
std::unique_ptr<Subject> argmax_subject(const SubjectOptions& options);

// Numbers 0 ... all - 1, at most so many, spread evenly.
std::vector<int64_t> spread(int64_t all, int64_t most);

// A new model of the same options with the weights it starts from, if it is asked for; in float64, evaluating.
template <typename Model, typename Options>
Model to_look_at(Model trained, const Options& options, bool fresh) {
  if (fresh) {
    at::manual_seed(1);
    trained = Model(options);
  }
  trained->to(at::kDouble);
  trained->eval();
  return trained;
}

// The one row of a trace.
Trace row_of(const Trace& trace, int64_t row);

}  // namespace fem
