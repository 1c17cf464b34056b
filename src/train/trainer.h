#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/sampler.h"
#include "evaluate/perplexity.h"
#include "fem/language_model.h"
#include "parallel/gradients.h"
#include "train/adamw.h"
#include "train/config.h"

namespace fem {

// A model, its optimizer and its place in the data: everything that a step changes and a checkpoint holds.
class Trainer {
 public:
  // The model's vocabulary is the corpus's unless the recipe names its size.
  Trainer(TrainConfig config, const Corpus& corpus, std::shared_ptr<ProcessGroup> group);

  struct Step {
    double loss = 0;  // nats a token, before the update
    double gradient_norm = 0;
    double learning_rate = 0;
    bool interrupted = false;  // a signal reached some process: all stop after this step
  };
  // Throws one sentence that names the first tensor that is not finite; parameters are then as before the step.
  Step step();
  int64_t steps_done() const { return steps_done_; }
  int64_t tokens_of_a_step() const { return config_.train.batch * config_.train.length; }

  Perplexity validate(int64_t max_tokens);

  // Model folder, optimizer and trainer_state.json; the first is what fem generate reads.
  void save(const std::filesystem::path& folder) const;
  // Rank 0 reads, the others are told.
  void load(const std::filesystem::path& folder);

  LanguageModel& model() { return model_; }
  const TrainConfig& config() const { return config_; }

 private:
  void send_to_all_ranks();
  at::Tensor backward(const PackedRows& rows);
  std::string first_not_finite(const PackedRows& rows);

  TrainConfig config_;
  const Corpus& corpus_;
  std::shared_ptr<ProcessGroup> group_;
  int64_t micro_batch_, micro_batches_;
  bool bfloat16_;
  LanguageModel model_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  Gradients gradients_;
  AdamW optimizer_;
  Sampler sampler_;
  int64_t steps_done_ = 0;
};

}  // namespace fem
