#include "experiments/argmax/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "fem/ops/gated_read.h"
#include "fem/ops/softmax_read.h"
#include "fem/options.h"

namespace fem {
namespace {

constexpr double kInitialStd = 0.02;
// Beta's start, its floor and the values' cap are the layer's own. Beta was seen to reach 12 in 1,900 steps at D 64, so
// values of 1 + noise stay below cap / beta and the clip does not act.
const MixerOptions kLayer;

}  // namespace

ArgmaxModel::ArgmaxModel(const ArgmaxConfig& config) : config_(config) {
  const int64_t dim = config.dim;
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(config.seed));
  const auto add_linear = [&](const std::string& name) {
    parameters_[name + ".weight"] = at::randn({dim, dim}, generator, at::kFloat).mul_(kInitialStd);
    parameters_[name + ".bias"] = at::zeros({dim});
  };
  // W_q and W_k come first so that both mixers start from the same prior.
  add_linear("W_q");
  add_linear("W_k");
  if (config.mixer == "fem") {
    add_linear("W_lambda");
    parameters_["_beta_param"] = at::full({dim}, kLayer.beta_max_init);
  }
  for (auto& [name, parameter] : parameters_) parameter.set_requires_grad(true);
}

at::Tensor ArgmaxModel::linear(const std::string& name, const at::Tensor& x) const {
  return at::linear(x, parameters_.at(name + ".weight"), parameters_.at(name + ".bias"));
}

at::Tensor ArgmaxModel::forward(const at::Tensor& x) const {
  const int64_t heads = config_.heads, width = config_.dim / heads;
  const auto split = [&](const at::Tensor& rows) { return rows.view({x.size(0), -1, heads, width}); };
  const at::Tensor last = x.select(1, x.size(1) - 1);
  const at::Tensor query = split(linear("W_q", last)), key = split(linear("W_k", x));

  at::Tensor out;
  if (config_.mixer == "fem") {
    const at::Tensor beta = (at::softplus(parameters_.at("_beta_param")) + kLayer.eps).view({heads, width});
    const at::Tensor value = clip_value(split(x), beta, kLayer.value_logexp_cap);
    out = gated_read(softmax_read(query, key, value, beta), split(linear("W_lambda", last)), std::nullopt);
  } else {
    out = softmax_read(query, key, split(x), std::nullopt).mean;
  }
  return out.reshape({x.size(0), config_.dim});
}

int64_t ArgmaxModel::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

}  // namespace fem
