#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "fem/language_model.h"
#include "models/token_mixer.h"
#include "support/tolerance.h"

namespace fem::testing {

inline BackboneOptions options_of(BlockMixer mixer, int64_t width, int64_t heads) {
  BackboneOptions options{.n_embd = width, .n_head = heads, .n_layer = 2, .mlp_width = width, .block_mixer = mixer};
  options.mixer.n_embd = width;
  options.mixer.n_head = heads;
  return options;
}

// The token mixer of one layer, all its weights random, in float64.
class OneMixer {
 public:
  OneMixer(const BackboneOptions& options, int64_t layer) : options_(options), layer_(layer) {
    at::manual_seed(5);
    const TokenMixer& mixer = token_mixer_of(options.block_mixer);
    mixer.check(options);
    for (const ParameterSpec& spec : mixer.parameters(options, layer)) {
      weights_.push_back((0.5 * at::randn(spec.shape, at::kDouble)).requires_grad_());
      names_.push_back(spec.name);
    }
    mix_ = mixer.bind(options, layer, weights_);
  }

  at::Tensor operator()(const at::Tensor& x, const Batch& batch = {}, MixerState* state = nullptr) const {
    return mix_(x, batch, state, false);
  }

  at::Tensor weight(const std::string& name) const {
    return weights_.at(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

  // x W^T + b
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return at::matmul(x, weight(name + ".weight").t()) + weight(name + ".bias");
  }

  // y and the gradients of x and of every weight, computed in one dtype on what is rounded to another.
  std::vector<at::Tensor> rounded(const at::Tensor& x, at::ScalarType to, at::ScalarType computed) const {
    const auto leaf = [&](const at::Tensor& z) { return z.detach().to(to).to(computed).requires_grad_(); };
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& weight : weights_) leaves.push_back(leaf(weight));
    const Mix mix = token_mixer_of(options_.block_mixer).bind(options_, layer_, leaves);
    leaves.insert(leaves.begin(), leaf(x));
    const at::Tensor y = mix(leaves[0], {}, nullptr, false);
    at::manual_seed(5);
    std::vector<at::Tensor> all = torch::autograd::grad({y}, leaves, {at::randn(y.sizes()).to(to).to(computed)});
    all.insert(all.begin(), y);
    return all;
  }

  // Is it the formula, in its values and in the gradients of x and of every weight?
  void expect(const at::Tensor& given, const std::function<at::Tensor(const at::Tensor&)>& formula) const {
    const at::Tensor x = given.detach().clone().requires_grad_();
    const at::Tensor actual = (*this)(x), expected = formula(x), projection = at::randn_like(x);
    EXPECT_TRUE(close(actual, expected, kFloat64));
    std::vector<at::Tensor> inputs{x};
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    const auto gradients = [&](const at::Tensor& y) { return torch::autograd::grad({(y * projection).sum()}, inputs); };
    const std::vector<at::Tensor> found = gradients(actual), sought = gradients(expected);
    for (size_t i = 0; i < inputs.size(); ++i) {
      // What is zero but for rounding, as a query's gradient of one token, is so beside the gradient of x.
      const std::string name = i == 0 ? "x" : names_[i - 1];
      if (sought[i].abs().max().item<double>() > 1e-12)
        EXPECT_TRUE(close(found[i], sought[i], kFloat64)) << name;
      else
        EXPECT_TRUE(vanishes(found[i], kFloat64, sought[0].abs().max().item<double>())) << name;
    }
  }

 private:
  const BackboneOptions options_;
  const int64_t layer_;
  std::vector<at::Tensor> weights_;
  std::vector<std::string> names_;
  Mix mix_;
};

inline int64_t parameters_of(const BackboneOptions& options) {
  return parameter_count(token_mixer_of(options.block_mixer).parameters(options, 0));
}

}  // namespace fem::testing
