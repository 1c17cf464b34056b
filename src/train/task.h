// The seam between training and what is trained.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fem {

using NamedTensor = std::pair<std::string, at::Tensor>;

// Figures with names, in the order in which people read them.
using NamedValues = std::vector<std::pair<std::string, double>>;
double value_of(const NamedValues& values, const std::string& name);  // throws if there is none of that name

struct TrainedParameter {
  std::string name;
  at::Tensor tensor;
  bool decayed;  // by train.weight_decay
};

// Rows first, first + stride, ... of the endless sequence of training rows; step s of batch B reads rows
// [s B, (s + 1) B).
struct Rows {
  int64_t first = 0, count = 0, stride = 1;
};

// A loss of some rows: summed over the targets that count, and how much these weigh. Ignored targets weigh nothing.
struct Weighted {
  at::Tensor sum;
  double weight = 0;
};

// Told after every batch of a validation how much of it is done. What it throws ends the validation.
using OnBatch = std::function<void(int64_t done, int64_t all)>;

// A process's share of a validation.
struct ValidationPart {
  int64_t part = 0, parts = 1;
  int64_t batch_rows = 1;  // rows of one forward pass
  bool whole = true;       // as much as the recipe wants at the end of a run; else, between two steps
  OnBatch on_batch = {};
};

// The measure by which a model is chosen: for early stopping, the best checkpoint and the best of several runs.
struct Goal {
  std::string measure;
  bool larger_is_better = false;
};

// A model, what it learns from and how it is measured. Nothing of it is state of a run but the parameters: the rows of
// a step are a pure function of the seed and their numbers, so that a run goes on from any step with any number of
// processes. Random numbers (dropout) come from torch's default generator, which is seeded for every step.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::vector<TrainedParameter> parameters() = 0;
  // In training mode; the trainer divides by the weight of all rows of the step, wherever they were computed.
  virtual Weighted loss(const Rows& rows) = 0;
  // The name and value of everything a forward pass makes, in order, for finding where numbers stop being finite.
  virtual std::vector<NamedTensor> trace(const Rows& rows) = 0;

  // Sums that add over the parts, and the figures made of them, one of which is "loss".
  virtual NamedValues validation_sums(const ValidationPart& part) = 0;
  virtual NamedValues measures(const NamedValues& sums) const = 0;
  virtual Goal goal() const = 0;

  // The recipe of the task as it was resolved: {"task": ..., "model": {...}, "data": {...}}.
  virtual nlohmann::json recipe() const = 0;
  // What must be the same when a run goes on, and in all processes: model, data, tokenizer. "files", if there are any:
  // {"training": [{"name", "checksum"}, ...], ...}, compared by their content and order.
  virtual nlohmann::json identity() const = 0;
  // Fields of identity() with their defaults: a run of a version that had no such field went by these.
  virtual nlohmann::json identity_defaults() const;  // none, unless a task says otherwise

  // The model's files, into and from a checkpoint's folder; load changes the parameters in place.
  virtual void save(const std::filesystem::path& folder) const = 0;
  virtual void load(const std::filesystem::path& folder) = 0;

  // What a row has many of, for rates: {"tokens", 256}.
  virtual std::pair<std::string, int64_t> units_of_a_row() const = 0;
  virtual std::string description() const = 0;  // "1,000 training and 100 validation tokens (bytes)"
};

}  // namespace fem
