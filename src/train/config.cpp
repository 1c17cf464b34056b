#include "train/config.h"

#include <cmath>
#include <numbers>

#include "io/language_model_config.h"
#include "io/options_json.h"

namespace fem {

using nlohmann::json;

json to_json(const TrainConfig& config) {
  json out;
  out["model"] = to_json(config.model);
  const auto into = [](json& place) {
    return [&place](const char* name, const auto& value, const char*) { write_option(place[name], value); };
  };
  visit_corpus_options(config.data, into(out["data"]));
  visit_train_options(config.train, into(out["train"]));
  return out;
}

TrainConfig train_config_from_json(const json& in) {
  TrainConfig config;
  OptionsReader sections("recipe", in);
  for (const char* name : {"model", "data", "train"}) sections.skip(name);
  sections.finish();
  if (in.contains("model")) config.model = language_model_options_from_json(in["model"]);
  if (in.contains("data")) {
    OptionsReader reader("data", in["data"]);
    visit_corpus_options(config.data, reader);
    reader.finish();
  }
  if (in.contains("train")) {
    OptionsReader reader("train", in["train"]);
    visit_train_options(config.train, reader);
    reader.finish();
  }
  check(config.train);
  return config;
}

void check(const TrainOptions& o) {
  for (const auto& [name, value] : {std::pair{"steps", o.steps},
                                    {"batch", o.batch},
                                    {"length", o.length},
                                    {"keep_checkpoints", o.keep_checkpoints},
                                    {"log_every", o.log_every},
                                    {"timeout_seconds", o.timeout_seconds}})
    FEM_CHECK(value >= 1, "train: expected ", name, " of at least 1, got ", value);
  for (const auto& [name, value] : {std::pair{"micro_batch", o.micro_batch},
                                    {"warmup_steps", o.warmup_steps},
                                    {"validate_every", o.validate_every},
                                    {"validation_tokens", o.validation_tokens},
                                    {"checkpoint_every", o.checkpoint_every},
                                    {"seed", o.seed}})
    FEM_CHECK(value >= 0, "train: expected ", name, " of at least 0, got ", value);
  FEM_CHECK(o.learning_rate > 0, "train: expected a positive learning_rate, got ", o.learning_rate);
  FEM_CHECK(o.final_learning_rate >= 0 && o.final_learning_rate <= 1,
            "train: expected final_learning_rate from 0 to 1, got ", o.final_learning_rate);
  for (const auto& [name, value] : {std::pair{"beta1", o.beta1}, {"beta2", o.beta2}})
    FEM_CHECK(value >= 0 && value < 1, "train: expected ", name, " in [0, 1), got ", value);
  for (const auto& [name, value] : {std::pair{"weight_decay", o.weight_decay}, {"clip", o.clip}})
    FEM_CHECK(value >= 0 && std::isfinite(value), "train: expected ", name, " of at least 0, got ", value);
}

void check_same_run(const json& saved, const json& now) {
  static const std::set<std::string> free{"/data/cache",        "/train/checkpoint_every", "/train/keep_checkpoints",
                                          "/train/log_every",   "/train/timeout_seconds",  "/train/validate_every",
                                          "/train/micro_batch", "/train/recompute",        "/train/validation_tokens"};
  const json before = saved.flatten(), after = now.flatten();
  for (const auto& [name, value] : after.items())
    FEM_CHECK(free.count(name) || before.value(name, json()) == value,
              "train: --resume goes on with the same run, but ", name.substr(1), " was ",
              before.value(name, json()).dump(), " and is now ", value.dump(),
              "; give the old value, or start another run with another --out");
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
