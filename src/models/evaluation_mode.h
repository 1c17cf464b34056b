#pragma once

#include <ATen/ATen.h>

#include "fem/language_model.h"

namespace fem {

// While one lives: no gradients and no dropout.
class EvaluationMode {
 public:
  explicit EvaluationMode(LanguageModel& model) : model_(model), was_training_(model->is_training()) { model_->eval(); }
  ~EvaluationMode() { model_->train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  LanguageModel& model_;
  const bool was_training_;
  const at::NoGradGuard no_gradients_;
};

}  // namespace fem
