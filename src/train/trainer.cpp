#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "fem/io/safetensors.h"
#include "io/checkpoint_folders.h"
#include "io/checksums.h"
#include "train/same_run.h"
#include "train/trainer_state.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/memory.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kState = "trainer_state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";

int64_t rows_of_a_rank(const TrainOptions& o, int64_t ranks) {
  FEM_CHECK(o.batch % ranks == 0, "train: expected train.batch to be a multiple of the ", ranks, " processes, got ",
            o.batch);
  return o.batch / ranks;
}

int64_t micro_batch_of(const TrainOptions& o, int64_t ranks) {
  const int64_t rows = rows_of_a_rank(o, ranks), micro = o.micro_batch == 0 ? rows : std::min(o.micro_batch, rows);
  FEM_CHECK(rows % micro == 0, "train: expected train.micro_batch to divide the ", rows,
            " rows that each process has of a step, got ", micro);
  return micro;
}

std::vector<at::Tensor> tensors_of(const std::vector<TrainedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const TrainedParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

bool finite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

// bfloat16 products while one lives; weights are cast once.
class Autocast {
 public:
  explicit Autocast(bool enabled) : enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!enabled_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }

 private:
  const bool enabled_;
};

}  // namespace

TrainOptions saved_options(const fs::path& folder) {
  const json identity = read_trainer_state(folder / kState).identity;
  FEM_CHECK(identity.contains("train"), "train: expected ", (folder / kState).string(),
            " to tell how the run was trained, but it does not; remove that checkpoint");
  return train_options_from_json(identity["train"]);
}

Trainer::Trainer(Task& task, const TrainOptions& options, std::shared_ptr<ProcessGroup> group)
    : task_(task),
      options_(options),
      group_(std::move(group)),
      micro_batch_(micro_batch_of(options_, group_->size())),
      micro_batches_(rows_of_a_rank(options_, group_->size()) / micro_batch_),
      bfloat16_(resolved(options_.precision) == Precision::kBfloat16),
      parameters_(task.parameters()),
      gradients_(tensors_of(parameters_), group_),
      optimizer_(parameters_, {.learning_rate = options_.learning_rate,
                               .weight_decay = options_.weight_decay,
                               .beta1 = options_.beta1,
                               .beta2 = options_.beta2}) {
  send_to_all_ranks();
}

void Trainer::send_to_all_ranks() {
  const at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_) group_->broadcast(parameter.tensor);
}

json Task::identity_defaults() const { return json::object(); }

json Trainer::identity() const {
  json identity = task_.identity();
  identity["train"] = to_json(options_);
  return identity;
}

int64_t Trainer::parameter_count() const {
  int64_t count = 0;
  for (const TrainedParameter& parameter : parameters_) count += parameter.tensor.numel();
  return count;
}

Weighted Trainer::backward(const Rows& rows) {
  Weighted loss;
  {
    const Autocast autocast(bfloat16_);
    loss = task_.loss(rows);
  }
  loss.sum.backward();
  return loss;
}

int64_t Trainer::bytes_of_a_micro_batch() {
  const auto bytes_of = [this](int64_t rows) {
    return allocated_by([&] { backward({.first = steps_done_ * options_.batch, .count = rows}); }).peak_bytes;
  };
  bytes_of(1);  // what is made once and kept is not a micro-batch's
  const int64_t one = bytes_of(1), more = micro_batch_ == 1 ? 0 : bytes_of(2) - one;
  gradients_.zero();
  return one + (micro_batch_ - 1) * std::max<int64_t>(more, 0);
}

// Processes that train together stop together, whichever of them a signal reached.
void Trainer::stop_together() {
  const int own = interrupted() ? interrupt_signal() : 0;
  const at::Tensor signals = at::tensor({own == SIGINT ? 1.0 : 0.0, own == SIGTERM ? 1.0 : 0.0}, at::kDouble);
  group_->sum(signals);
  if (signals.sum().item<double>() == 0) return;
  take_interrupt(signals[1].item<double>() > 0 ? SIGTERM : SIGINT);
  throw Interrupted();
}

Trainer::Step Trainer::step() {
  const int64_t rank = group_->rank(), ranks = group_->size();
  at::manual_seed(options_.seed + (steps_done_ * ranks + rank + 1) * 0x9E3779B97F4A7C15);  // of dropout
  gradients_.zero();
  double sum = 0, own_weight = 0;
  Rows rows{.count = micro_batch_, .stride = ranks};
  for (int64_t i = 0; i < micro_batches_; ++i) {
    stop_together();
    rows.first = steps_done_ * options_.batch + i * micro_batch_ * ranks + rank;
    if (i + 1 == micro_batches_) gradients_.reduce_in_next_backward();
    const Weighted loss = backward(rows);
    sum += loss.sum.item<double>();
    own_weight += loss.weight;
  }
  gradients_.finish();

  const at::Tensor shared = at::tensor({sum, own_weight}, at::kDouble);
  group_->sum(shared);
  const double weight = shared[1].item<double>();
  FEM_CHECK(weight > 0, "train: step ", steps_done_ + 1, ": expected rows with targets to learn from, got a weight of ",
            weight, " for all ", options_.batch, " rows of the step");
  Step done{.loss = shared[0].item<double>() / weight, .learning_rate = learning_rate_at(options_, steps_done_)};
  std::vector<at::Tensor> views = gradients_.views();
  done.gradient_norm = at::stack(at::_foreach_norm(views)).norm().item<double>() / weight;
  FEM_CHECK(std::isfinite(done.loss) && std::isfinite(done.gradient_norm), "train: step ", steps_done_ + 1,
            ": the loss is ", done.loss, " and the gradient's norm ", done.gradient_norm,
            "; the first tensor that is not finite is ", first_not_finite(rows),
            ". The last checkpoint is as it was; lower train.learning_rate or train.clip");
  // The buckets hold gradients of the sum; this makes them those of the mean, clipped.
  const bool clips = options_.clip > 0 && done.gradient_norm > options_.clip;
  at::_foreach_mul_(views, (clips ? options_.clip / done.gradient_norm : 1.0) / weight);
  optimizer_.set_learning_rate(done.learning_rate);
  optimizer_.step(views);
  ++steps_done_;
  return done;
}

std::string Trainer::first_not_finite(const Rows& rows) {
  const at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_)
    if (!finite(parameter.tensor)) return "the parameter " + parameter.name;
  for (const auto& [name, tensor] : task_.trace(rows))
    if (!finite(tensor)) return "the output of " + name;
  for (size_t i = parameters_.size(); i-- > 0;)
    if (!finite(gradients_.views()[i])) return "the gradient of " + parameters_[i].name;
  return "in another process";
}

NamedValues Trainer::validate(bool whole, const OnBatch& on_batch) {
  const Autocast autocast(bfloat16_);
  const auto after_batch = [&](int64_t done, int64_t all) {
    throw_if_interrupted();
    if (on_batch) on_batch(done, all);
  };
  NamedValues sums;
  try {
    sums = task_.validation_sums({.part = group_->rank(),
                                  .parts = group_->size(),
                                  .batch_rows = micro_batch_,
                                  .whole = whole,
                                  .on_batch = after_batch});
  } catch (const Interrupted&) {  // the others are told below
  }
  stop_together();
  std::vector<double> values;
  for (const auto& [name, value] : sums) values.push_back(value);
  const at::Tensor all = at::tensor(values, at::kDouble);
  group_->sum(all);
  for (size_t i = 0; i < sums.size(); ++i) sums[i].second = all[static_cast<int64_t>(i)].item<double>();
  return task_.measures(sums);
}

void Trainer::save(const fs::path& folder) const {
  Safetensors optimizer;
  optimizer.tensors = optimizer_.state();
  const auto check_finite = [this](const std::string& name, const at::Tensor& tensor) {
    FEM_CHECK(finite(tensor), "train: after step ", steps_done_, " ", name,
              " is not finite, and nothing of it was saved. ",
              "The last checkpoint is as it was; lower train.learning_rate or train.clip");
  };
  for (const TrainedParameter& parameter : parameters_)
    check_finite("the parameter " + parameter.name, parameter.tensor);
  for (const auto& [name, tensor] : optimizer.tensors) check_finite("the optimizer's " + name, tensor);
  task_.save(folder);
  save_safetensors(folder / kOptimizer, optimizer);
  write_trainer_state(folder / kState, {steps_done_, seconds, best, identity()});
}

void Trainer::load(const fs::path& folder) {
  const at::NoGradGuard no_grad;
  if (group_->rank() == 0) {
    const TrainerState state = read_trainer_state(folder / kState);
    json defaults = task_.identity_defaults();
    defaults["train"] = to_json(TrainOptions());
    check_same_run(state.identity, identity(), defaults);
    task_.load(folder);
    optimizer_.restore(load_safetensors(folder / kOptimizer).tensors);
    steps_done_ = state.step;
    seconds = state.seconds;
    best = state.best;
  }
  send_to_all_ranks();
  NamedTensors moments = optimizer_.state();
  for (auto& [name, tensor] : moments) group_->broadcast(tensor);
  optimizer_.restore(moments);
  const at::Tensor counts = at::tensor({steps_done_, best.validated, best.step, best.since}, at::kLong);
  const at::Tensor values = at::tensor({best.value, seconds}, at::kDouble);
  group_->broadcast(counts);
  group_->broadcast(values);
  const auto count = [&](int64_t i) { return counts[i].item<int64_t>(); };
  steps_done_ = count(0);
  best = {.validated = count(1), .step = count(2), .value = values[0].item<double>(), .since = count(3)};
  seconds = values[1].item<double>();
}

void Trainer::load_model(const fs::path& folder) {
  const at::NoGradGuard no_grad;
  if (group_->rank() == 0) {
    const std::string damage = has_checksums(folder) ? damage_in(folder) : "";
    FEM_CHECK(damage.empty(), "train: ", damage, remedy_for_checkpoint(folder));
    task_.load(folder);
  }
  send_to_all_ranks();
}

}  // namespace fem
