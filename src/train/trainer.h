#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "parallel/gradients.h"
#include "train/adamw.h"
#include "train/best.h"
#include "train/options.h"
#include "train/task.h"

namespace fem {

// A task's model, its optimizer and its place in the data: everything that a step changes and a checkpoint holds.
class Trainer {
 public:
  Trainer(Task& task, const TrainOptions& options, std::shared_ptr<ProcessGroup> group);

  struct Step {
    double loss = 0;  // the mean over the targets, before the update
    double gradient_norm = 0;
    double learning_rate = 0;
  };
  // Throws one sentence that names the first tensor that is not finite; parameters are then as before the step. A
  // signal that reaches any process before all rows have been read ends the step in all of them: Interrupted is thrown,
  // and the step counts as not begun.
  Step step();
  int64_t steps_done() const { return steps_done_; }

  int64_t micro_batch() const { return micro_batch_; }  // rows of one forward pass
  // What a micro-batch takes besides the parameters and what goes with them: measured on one and on two rows of the
  // next step, forward and backward; the gradients are cleared again.
  int64_t bytes_of_a_micro_batch();

  // Throws Interrupted in all processes if a signal reached any before the end.
  NamedValues validate(bool whole, const OnBatch& on_batch = {});

  // The task's files, optimizer.safetensors and trainer_state.json. Throws if any number in them is not finite.
  void save(const std::filesystem::path& folder) const;
  // Rank 0 reads, the others are told.
  void load(const std::filesystem::path& folder);
  // The model's parameters alone, on all ranks.
  void load_model(const std::filesystem::path& folder);

  // Task, model, data and options: what must be the same when a run goes on.
  nlohmann::json identity() const;
  int64_t parameter_count() const;
  const std::vector<at::Tensor>& gradients() const { return gradients_.views(); }

  Best best;           // of the validations so far
  double seconds = 0;  // that the run took up to here

 private:
  void send_to_all_ranks();
  void stop_together();
  Weighted backward(const Rows& rows);
  std::string first_not_finite(const Rows& rows);

  Task& task_;
  const TrainOptions options_;
  std::shared_ptr<ProcessGroup> group_;
  int64_t micro_batch_, micro_batches_;
  bool bfloat16_;
  std::vector<TrainedParameter> parameters_;
  Gradients gradients_;
  AdamW optimizer_;
  int64_t steps_done_ = 0;
};

// Those of the run that a checkpoint is of.
TrainOptions saved_options(const std::filesystem::path& checkpoint);

}  // namespace fem
