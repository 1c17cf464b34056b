#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "fem/options.h"

namespace fem {

enum class Precision { kAuto, kFloat32, kBfloat16 };
template <>
struct Spelling<Precision> {
  static constexpr std::array values{std::pair{std::string_view("auto"), Precision::kAuto},
                                     std::pair{std::string_view("float32"), Precision::kFloat32},
                                     std::pair{std::string_view("bfloat16"), Precision::kBfloat16}};
};

// With these no product of them overflows.
inline constexpr int64_t kMostSteps = int64_t{1} << 36, kLargestBatch = 1 << 24, kLongestTimeout = 100'000'000;

struct TrainOptions {
  int64_t steps = 1000;
  int64_t batch = 16;
  int64_t micro_batch = 0;
  double learning_rate = 4e-4;
  double final_learning_rate = 0.1;
  int64_t warmup_steps = 100;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double weight_decay = 0.1;
  double clip = 1.0;
  int64_t seed = 0;
  bool recompute = false;
  Precision precision = Precision::kAuto;
  std::string init_from;
  int64_t validate_every = 100;
  bool validate_first = false;
  int64_t patience = 0;
  std::optional<double> enough;
  bool keep_best = false;
  int64_t checkpoint_every = 100;
  int64_t keep_checkpoints = 2;
  int64_t log_every = 10;
  int64_t timeout_seconds = 300;
};

template <typename Options, typename Visitor>
void visit_train_options(Options& o, Visitor&& visit) {
  visit("steps", o.steps, "updates of the parameters");
  visit("batch", o.batch, "rows of a step, over all processes");
  visit("micro_batch", o.micro_batch, "rows of one forward pass; 0: all that a process has of a step");
  visit("learning_rate", o.learning_rate, "the highest, after the warm-up");
  visit("final_learning_rate", o.final_learning_rate, "where the cosine ends, relative to learning_rate");
  visit("warmup_steps", o.warmup_steps, "steps of linear growth to learning_rate");
  visit("beta1", o.beta1, "AdamW's decay of the first moment");
  visit("beta2", o.beta2, "AdamW's decay of the second moment");
  visit("weight_decay", o.weight_decay, "AdamW's, of the parameters that the task names");
  visit("clip", o.clip, "the gradient's largest norm; 0: any");
  visit("seed", o.seed, "of the initial parameters and of the order of the rows");
  visit("recompute", o.recompute, "compute blocks again in backward instead of keeping them");
  visit("precision", o.precision, "float32, bfloat16 (autocast), auto: bfloat16 where the CPU has it");
  visit("init_from", o.init_from, "a run or model folder whose parameters (and tokenizer) the run begins with");
  visit("validate_every", o.validate_every, "steps between two validations; 0: only at the end");
  visit("validate_first", o.validate_first, "also before the first step");
  visit("patience", o.patience, "stop after so many validations without a better one; 0: never");
  visit("enough", o.enough, "stop after a validation whose measure to choose by is as good as this; unset: never");
  visit("keep_best", o.keep_best, "keep the best checkpoint (RUN/best) and measure that one at the end");
  visit("checkpoint_every", o.checkpoint_every, "steps between two checkpoints; 0: only at the end");
  visit("keep_checkpoints", o.keep_checkpoints, "older ones are removed");
  visit("log_every", o.log_every, "steps between two lines of metrics.jsonl");
  visit("timeout_seconds", o.timeout_seconds, "how long a process waits for the others before it gives up");
}

nlohmann::json to_json(const TrainOptions& options);
// [train] of a recipe. Absent fields keep their defaults; an unknown field or a value of the wrong type is an error.
TrainOptions train_options_from_json(const nlohmann::json& json);
// Throws one sentence for the first value out of range.
void check(const TrainOptions& options);

// What auto stands for on this machine.
Precision resolved(Precision precision);

// The learning rate of a step, counted from 0: linear warm-up, then a cosine.
double learning_rate_at(const TrainOptions& options, int64_t step);

}  // namespace fem
