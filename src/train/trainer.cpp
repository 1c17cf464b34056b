#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fem/io/model_folder.h"
#include "fem/io/safetensors.h"
#include "fem/version.h"
#include "io/atomic_file.h"
#include "util/check.h"
#include "util/interrupt.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kState = "trainer_state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";

TrainConfig with_vocabulary(TrainConfig config, int64_t vocabulary) {
  FEM_CHECK(config.model.vocab_size == 0 || config.model.vocab_size >= vocabulary,
            "train: expected model.vocab_size of at least ", vocabulary, ", the tokenizer's, got ",
            config.model.vocab_size, "; leave it out to take the tokenizer's");
  if (config.model.vocab_size == 0) config.model.vocab_size = vocabulary;
  return config;
}

LanguageModel new_model(const TrainConfig& config) {
  at::manual_seed(config.train.seed);
  LanguageModel model(config.model);
  model->recompute = config.train.recompute;
  return model;
}

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

bool is_bfloat16(Precision precision) {
  const bool has_products = bfloat16_products().starts_with("A");  // AMX or AVX512_BF16
  return precision == Precision::kBfloat16 || (precision == Precision::kAuto && has_products);
}

std::vector<std::pair<std::string, at::Tensor>> listed(const LanguageModel& model) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const auto& parameter : model->named_parameters()) parameters.emplace_back(parameter.key(), parameter.value());
  return parameters;
}

std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
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

Trainer::Trainer(TrainConfig config, const Corpus& corpus, std::shared_ptr<ProcessGroup> group)
    : config_(with_vocabulary(std::move(config), corpus.tokenizer->vocab_size())),
      corpus_(corpus),
      group_(std::move(group)),
      micro_batch_(micro_batch_of(config_.train, group_->size())),
      micro_batches_(rows_of_a_rank(config_.train, group_->size()) / micro_batch_),
      bfloat16_(is_bfloat16(config_.train.precision)),
      model_(new_model(config_)),
      parameters_(listed(model_)),
      gradients_(tensors_of(parameters_), group_),
      optimizer_(parameters_, {.learning_rate = config_.train.learning_rate,
                               .weight_decay = config_.train.weight_decay,
                               .beta1 = config_.train.beta1,
                               .beta2 = config_.train.beta2,
                               .decay_matrices_only = true}),
      sampler_(corpus.train, config_.train.length, config_.train.seed) {
  send_to_all_ranks();
}

void Trainer::send_to_all_ranks() {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters_) group_->broadcast(parameter);
}

at::Tensor Trainer::backward(const PackedRows& rows) {
  at::Tensor loss;
  {
    const Autocast autocast(bfloat16_);
    loss = model_->surprise(rows.tokens, rows.targets, {.cu_seqlens = rows.cu_seqlens}).sum() /
           static_cast<double>(tokens_of_a_step());
  }
  loss.backward();
  return loss.detach();
}

Trainer::Step Trainer::step() {
  const TrainOptions& o = config_.train;
  const int64_t rank = group_->rank(), ranks = group_->size();
  model_->train();
  at::manual_seed(o.seed + (steps_done_ * ranks + rank + 1) * 0x9E3779B97F4A7C15);  // of dropout
  gradients_.zero();
  double loss = 0;
  PackedRows rows;
  for (int64_t i = 0; i < micro_batches_; ++i) {
    rows = sampler_.rows(steps_done_ * o.batch + i * micro_batch_ * ranks + rank, micro_batch_, ranks);
    if (i + 1 == micro_batches_) gradients_.reduce_in_next_backward();
    loss += backward(rows).item<double>();
  }
  gradients_.finish();

  const at::Tensor shared = at::tensor({loss, interrupted() ? 1.0 : 0.0}, at::kDouble);
  group_->sum(shared);
  Step done{.loss = shared[0].item<double>(),
            .learning_rate = learning_rate_at(o, steps_done_),
            .interrupted = shared[1].item<double>() > 0};
  std::vector<at::Tensor> views = gradients_.views();
  done.gradient_norm = at::stack(at::_foreach_norm(views)).norm().item<double>();
  FEM_CHECK(std::isfinite(done.loss) && std::isfinite(done.gradient_norm), "train: step ", steps_done_ + 1,
            ": the loss is ", done.loss, " and the gradient's norm ", done.gradient_norm,
            "; the first tensor that is not finite is ", first_not_finite(rows),
            ". The last checkpoint is as it was; lower train.learning_rate or train.clip");
  if (o.clip > 0 && done.gradient_norm > o.clip) at::_foreach_mul_(views, o.clip / done.gradient_norm);
  optimizer_.set_learning_rate(done.learning_rate);
  optimizer_.step(views);
  ++steps_done_;
  return done;
}

std::string Trainer::first_not_finite(const PackedRows& rows) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters_)
    if (!finite(parameter)) return "the parameter " + name;
  for (const auto& [name, tensor] : model_->trace(rows.tokens, {.cu_seqlens = rows.cu_seqlens}))
    if (!finite(tensor)) return "the output of " + name;
  for (size_t i = parameters_.size(); i-- > 0;)
    if (!finite(gradients_.views()[i])) return "the gradient of " + parameters_[i].first;
  return "in another process";
}

Perplexity Trainer::validate(int64_t max_tokens) {
  const Autocast autocast(bfloat16_);
  Perplexity own = measure_perplexity(model_, corpus_.validation,
                                      {.length = config_.train.length,
                                       .batch_rows = micro_batch_,
                                       .max_tokens = max_tokens,
                                       .part = group_->rank(),
                                       .parts = group_->size()});
  const at::Tensor all =
      at::tensor({static_cast<double>(own.tokens), static_cast<double>(own.bytes), own.nats}, at::kDouble);
  group_->sum(all);
  return {all[0].item<int64_t>(), all[1].item<int64_t>(), all[2].item<double>()};
}

void Trainer::save(const fs::path& folder) const {
  save_language_model(folder, model_);
  corpus_.tokenizer->save(folder);
  Safetensors optimizer;
  optimizer.tensors = optimizer_.state();
  save_safetensors(folder / kOptimizer, optimizer);
  const json state{
      {"step", steps_done_}, {"config", to_json(config_)}, {"tokenizer", corpus_.tokenizer->fingerprint()}};
  write_atomically(folder / kState, [&](std::ostream& file) { file << state.dump(2) << "\n"; });
}

void Trainer::load(const fs::path& folder) {
  const at::NoGradGuard no_grad;
  if (group_->rank() == 0) {
    std::ifstream file(folder / kState);
    const json state = json::parse(file, nullptr, /*allow_exceptions=*/false);
    FEM_CHECK(state.is_object() && state.contains("step") && state.contains("config"), "train: expected ",
              (folder / kState).string(), " to tell where to go on, but it cannot be read; remove that checkpoint");
    check_same_run(state["config"], to_json(config_));
    FEM_CHECK(state.value("tokenizer", "") == corpus_.tokenizer->fingerprint(), "train: the checkpoint ",
              folder.string(), " was trained with another tokenizer than the corpus has now; start another run");
    const std::vector<at::Tensor> saved = load_language_model(folder)->parameters();
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].second.copy_(saved[i]);
    optimizer_.restore(load_safetensors(folder / kOptimizer).tensors);
    steps_done_ = state["step"].get<int64_t>();
  }
  send_to_all_ranks();
  NamedTensors moments = optimizer_.state();
  for (auto& [name, tensor] : moments) group_->broadcast(tensor);
  optimizer_.restore(moments);
  const at::Tensor step = at::tensor({steps_done_}, at::kLong);
  group_->broadcast(step);
  steps_done_ = step.item<int64_t>();
}

}  // namespace fem
