// Energies against autograd, finite differences, attention and recurrences.
#include "fem/energy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/tolerance.h"

namespace fem {
namespace {

using testing::close;
using testing::fails_with;
using testing::kFloat64;

constexpr int64_t kBatch = 2, kTokens = 7, kHeads = 3, kWidth = 4;

at::Tensor tokens(int64_t count, int64_t width = kWidth) {
  return at::randn({kBatch, count, kHeads, width}, at::kDouble);
}

struct Case {
  const char* name;
  EnergyOptions options;
  int64_t queries = kTokens;
};

std::vector<Case> cases() {
  at::manual_seed(1);
  const at::Tensor decays = -at::rand({kBatch, kTokens, kHeads}, at::kDouble);
  return {{"elastic", {}},
          {"elastic_cold", {.temperature = 0.3}},
          {"elastic_encoder", {.causal = false}},
          {"elastic_last_tokens", {}, 3},
          {"product", {.potential = Potential::kProduct}},
          {"linear", {.potential = Potential::kLinear}},
          {"linear_encoder", {.potential = Potential::kLinear, .causal = false}, 3},
          {"gated", {.potential = Potential::kLinear, .log_decay = decays}},
          {"gated_last_tokens", {.potential = Potential::kLinear, .log_decay = decays}, 3}};
}

TEST(Energies, GradientsAndHessianProductsAreAutogradsAndFiniteDifferences) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const at::Tensor query = tokens(one.queries).requires_grad_(), key = tokens(kTokens),
                     direction = tokens(one.queries);
    const at::Tensor value = energy(query, key, one.options);
    EXPECT_EQ(value.sizes(), (std::vector<int64_t>{kBatch, one.queries, kHeads}));
    const at::Tensor first = torch::autograd::grad({value.sum()}, {query}, {}, true, /*create_graph=*/true)[0];
    const at::Tensor gradient = energy_gradient(query, key, one.options);
    EXPECT_TRUE(close(gradient.detach(), first.detach(), kFloat64));
    const at::Tensor second = torch::autograd::grad({(first * direction).sum()}, {query})[0];
    EXPECT_TRUE(close(energy_hessian_product(query, key, direction, one.options).detach(), second, kFloat64));
    const at::NoGradGuard no_gradients;
    constexpr double kStep = 1e-6;
    const auto along = [&](double step) { return energy(query + step * direction, key, one.options); };
    EXPECT_TRUE(close((along(kStep) - along(-kStep)) / (2 * kStep), (gradient * direction).sum(-1),
                      testing::kFiniteDifference));
  }
}

// With tied weights a layer of attention is a step of descent.
TEST(Energies, MinusTheGradientIsAttentionWhoseValuesAreItsKeys) {
  at::manual_seed(2);
  const at::Tensor query = tokens(kTokens), key = tokens(kTokens);
  const auto attention = [&](const at::Tensor& k) {
    const at::Tensor heads = k.transpose(1, 2);
    return at::scaled_dot_product_attention(query.transpose(1, 2), heads, heads, {}, 0.0, true).transpose(1, 2);
  };
  EXPECT_TRUE(close(-energy_gradient(query, key, {.potential = Potential::kProduct}), attention(key), kFloat64));
  const at::Tensor as_long = key / key.norm(2, {-1}, true);
  EXPECT_TRUE(close(-energy_gradient(query, as_long), attention(as_long) - query, kFloat64));
  EXPECT_FALSE(close(-energy_gradient(query, key), attention(key) - query, kFloat64)) << "only keys of one length";
}

TEST(Energies, TheLinearOneIsTheRecurrenceOfItsState) {
  at::manual_seed(3);
  const at::Tensor query = tokens(kTokens), key = tokens(kTokens);
  const at::Tensor log_decay = -at::rand({kBatch, kTokens, kHeads}, at::kDouble);
  for (const bool gated : {false, true}) {
    at::Tensor state = at::zeros({kBatch, kHeads, kWidth, kWidth}, at::kDouble);
    std::vector<at::Tensor> reads;
    for (int64_t t = 0; t < kTokens; ++t) {
      const at::Tensor k = key.select(1, t);
      if (gated) state = state * log_decay.select(1, t).exp().unsqueeze(-1).unsqueeze(-1);
      state = state + k.unsqueeze(-1) * k.unsqueeze(-2);
      reads.push_back(at::matmul(query.select(1, t).unsqueeze(-2), state).squeeze(-2) / std::sqrt(double{kWidth}));
    }
    EnergyOptions options{.potential = Potential::kLinear};
    if (gated) options.log_decay = log_decay;
    EXPECT_TRUE(close(-energy_gradient(query, key, options), at::stack(reads, 1), kFloat64)) << gated;
  }
}

TEST(Energies, PlainDescentGoesDownAtEveryStep) {
  at::manual_seed(4);
  const at::Tensor key = tokens(kTokens);
  at::Tensor query = 2 * tokens(kTokens);
  at::Tensor before = energy(query, key);
  for (int step = 0; step < 50; ++step) {
    query = query - 0.1 * energy_gradient(query, key);
    const at::Tensor now = energy(query, key);
    EXPECT_TRUE((now < before).all().item<bool>()) << step;
    before = now;
  }
}

TEST(NewtonSteps, SolveTheHessianAndTellWhereItIsIndefinite) {
  at::manual_seed(5);
  const at::Tensor query = tokens(kTokens), key = tokens(kTokens);
  const NewtonStep warm = newton_step(query, key, {.temperature = 50.0});
  EXPECT_TRUE(close(energy_hessian_product(query, key, warm.step, {.temperature = 50.0}),
                    -energy_gradient(query, key, {.temperature = 50.0}), kFloat64));
  EXPECT_GT(warm.smallest_curvature.min().item<double>(), 0);
  EXPECT_LT(newton_step(query, key, {.temperature = 0.25}).smallest_curvature.min().item<double>(), 0);
  // The first token sees one key: no covariance, the Hessian is 1 and the step leads to the key.
  EXPECT_TRUE(close(warm.smallest_curvature.select(1, 0), at::ones({kBatch, kHeads}, at::kDouble), kFloat64));
  EXPECT_TRUE(close((query + warm.step).select(1, 0), key.select(1, 0), kFloat64));
}

TEST(Energies, WhatCannotBeIsOneSentence) {
  const at::Tensor query = tokens(3), key = tokens(kTokens);
  EXPECT_TRUE(fails_with("expected query of shape [B, Tq, H, K]", [&] { energy(query[0], key); }));
  EXPECT_TRUE(fails_with("expected at least one key for each query, got 3 keys and 7", [&] { energy(key, query); }));
  EXPECT_TRUE(fails_with("expected a positive temperature, got 0", [&] { energy(query, key, {.temperature = 0}); }));
  EXPECT_TRUE(fails_with("energy: expected key", [&] { energy(query, tokens(kTokens, 5)); }));
  const at::Tensor decay = at::zeros({kBatch, kTokens, kHeads}, at::kDouble);
  EXPECT_TRUE(
      fails_with("log_decay belongs to the linear potential", [&] { energy(query, key, {.log_decay = decay}); }));
  EXPECT_TRUE(fails_with("expected causal to be true", [&] {
    energy(query, key, {.potential = Potential::kLinear, .causal = false, .log_decay = decay});
  }));
}

}  // namespace
}  // namespace fem
