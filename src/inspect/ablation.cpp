#include "inspect/ablation.h"

#include <ATen/ATen.h>

#include "inspect/statistics.h"
#include "mixer/inner_gate.h"
#include "mixer/parameters.h"
#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

MixerWeights weights_of_layer(const torch::nn::Module& model, const MixerOptions& options, int64_t layer) {
  const auto named = model.named_parameters();
  MixerWeights weights;
  visit_parameters(options, weights, [&](const ParameterSpec& spec, at::Tensor& slot) {
    slot = named["blocks." + std::to_string(layer) + ".mixer." + spec.name];
  });
  return weights;
}

// The parameters as they were, put back at the end.
class Kept {
 public:
  explicit Kept(torch::nn::Module& model) : parameters_(model.parameters()) {
    for (const at::Tensor& parameter : parameters_) values_.push_back(parameter.detach().clone());
  }
  ~Kept() { put_back(); }
  void put_back() {
    const at::NoGradGuard no_gradients;
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(values_[i]);
  }

 private:
  std::vector<at::Tensor> parameters_, values_;
};

double loss_of(Subject& subject) {
  const at::NoGradGuard no_gradients;
  SummedLoss all;
  for (int64_t batch = 0; batch < subject.batches(); ++batch) {
    const SummedLoss one = subject.loss(batch);
    all.sum += one.sum;
    all.count += one.count;
  }
  return all.sum / all.count;
}

// Mean lambda of every channel, [L, E].
at::Tensor mean_lambda(Subject& subject) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> sums(static_cast<size_t>(subject.options().n_layer));
  int64_t tokens = 0;
  for (int64_t batch = 0; batch < subject.batches(); ++batch) {
    const ModelInspector inspector(subject.model(), subject.options(), subject.trace(batch));
    inspect_all(inspector, [&](int64_t layer, const std::vector<int64_t>&, const Inspection& i) {
      at::Tensor& sum = sums[static_cast<size_t>(layer)];
      const at::Tensor more = i.lambda.flatten(2).sum({0, 1});
      sum = sum.defined() ? sum + more : more;
      if (layer == 0) tokens += i.lambda.size(0) * i.lambda.size(1);
    });
  }
  return at::stack(sums) / static_cast<double>(tokens);
}

}  // namespace

std::vector<Ablation> ablate(Subject& subject, const std::vector<double>& thresholds,
                             const std::function<void(int64_t done, int64_t all)>& on_step) {
  const BackboneOptions& options = subject.options();
  FEM_CHECK(options.block_mixer == BlockMixer::kFem && options.mixer.has_inner_gate() && options.mixer.bias,
            "inspect: --ablate needs a model whose mixers are fem with an inner gate (letter T) and biases, got ",
            spelled(options.block_mixer));
  const int64_t layers = options.n_layer, steps = 3 + 2 * layers + static_cast<int64_t>(thresholds.size());
  const at::Tensor lambda = mean_lambda(subject), everywhere = at::ones_like(lambda, at::kBool);
  Kept kept(subject.model());
  std::vector<Ablation> found;
  // channels [L, E]: those to set.
  const auto measure = [&](const std::string& what, const at::Tensor& channels, double to) {
    for (int64_t layer = 0; layer < layers; ++layer)
      set_inner_gate(weights_of_layer(subject.model(), options.mixer, layer), options.mixer, channels[layer], to);
    found.push_back({what, channels.to(at::kDouble).mean().item<double>(), loss_of(subject)});
    kept.put_back();
    on_step(static_cast<int64_t>(found.size()), steps);
  };
  measure("as trained", everywhere.logical_not(), 0);
  for (const double to : {0.0, 1.0}) {
    const std::string text = "lambda = " + fixed(to, 0);
    measure("all layers, " + text, everywhere, to);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const at::Tensor one = at::zeros_like(everywhere);
      one[layer].fill_(true);
      measure("layer " + std::to_string(layer) + ", " + text, one, to);
    }
  }
  for (const double threshold : thresholds)
    measure("channels with mean lambda < " + fixed(threshold, 2) + ": 0", lambda < threshold, 0);
  return found;
}

std::string ablation_table(const std::vector<Ablation>& ablations, const char* unit) {
  Table table({"what is set", "channels", std::string("loss, ") + unit, "change"});
  for (const Ablation& one : ablations) {
    const double change = one.loss - ablations.front().loss;
    table.add(
        {one.what, fixed(100 * one.share, 1) + " %", fixed(one.loss, 4), (change < 0 ? "" : "+") + fixed(change, 4)});
  }
  return table.str();
}

Json ablation_document(const std::vector<Ablation>& ablations) {
  Json all = Json::array();
  for (const Ablation& one : ablations)
    all.push_back({{"what", one.what}, {"channels", one.share}, {"loss", one.loss}});
  return all;
}

}  // namespace fem
