#include "train/options.h"

#include <cmath>
#include <numbers>

#include "fem/version.h"
#include "io/options_json.h"

namespace fem {

using nlohmann::json;

json to_json(const TrainOptions& options) {
  json out;
  visit_train_options(options,
                      [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  return out;
}

TrainOptions train_options_from_json(const json& in) {
  TrainOptions options;
  OptionsReader reader("train", in);
  visit_train_options(options, reader);
  reader.finish();
  check(options);
  return options;
}

void check(const TrainOptions& o) {
  for (const auto& [name, value] : {std::pair{"steps", o.steps},
                                    {"batch", o.batch},
                                    {"keep_checkpoints", o.keep_checkpoints},
                                    {"log_every", o.log_every},
                                    {"timeout_seconds", o.timeout_seconds}})
    FEM_CHECK(value >= 1, "train: expected ", name, " of at least 1, got ", value);
  for (const auto& [name, value] : {std::pair{"micro_batch", o.micro_batch},
                                    {"warmup_steps", o.warmup_steps},
                                    {"validate_every", o.validate_every},
                                    {"patience", o.patience},
                                    {"checkpoint_every", o.checkpoint_every},
                                    {"seed", o.seed}})
    FEM_CHECK(value >= 0, "train: expected ", name, " of at least 0, got ", value);
  for (const auto& [name, value, most] : {std::tuple{"steps", o.steps, kMostSteps},
                                          {"batch", o.batch, kLargestBatch},
                                          {"timeout_seconds", o.timeout_seconds, kLongestTimeout}})
    FEM_CHECK(value <= most, "train: expected ", name, " of at most ", most, ", got ", value);
  FEM_CHECK(o.validate_every > 0 || (o.patience == 0 && !o.enough && !o.keep_best),
            "train: patience, enough and keep_best need validations between the steps, got validate_every 0");
  FEM_CHECK(o.learning_rate > 0, "train: expected a positive learning_rate, got ", o.learning_rate);
  FEM_CHECK(o.final_learning_rate >= 0 && o.final_learning_rate <= 1,
            "train: expected final_learning_rate from 0 to 1, got ", o.final_learning_rate);
  for (const auto& [name, value] : {std::pair{"beta1", o.beta1}, {"beta2", o.beta2}})
    FEM_CHECK(value >= 0 && value < 1, "train: expected ", name, " in [0, 1), got ", value);
  for (const auto& [name, value] : {std::pair{"weight_decay", o.weight_decay}, {"clip", o.clip}})
    FEM_CHECK(value >= 0 && std::isfinite(value), "train: expected ", name, " of at least 0, got ", value);
}

Precision resolved(Precision precision) {
  if (precision != Precision::kAuto) return precision;
  return has_bfloat16_products() ? Precision::kBfloat16 : Precision::kFloat32;
}

double learning_rate_at(const TrainOptions& o, int64_t step) {
  if (step < o.warmup_steps)
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  const auto rest = static_cast<double>(std::max<int64_t>(o.steps - o.warmup_steps, 1));
  const double share = std::min(static_cast<double>(step - o.warmup_steps) / rest, 1.0);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * share));
  return o.learning_rate * (o.final_learning_rate + (1 - o.final_learning_rate) * cosine);
}

}  // namespace fem
