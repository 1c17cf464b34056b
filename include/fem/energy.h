// Attention as descent on an energy: the function of a query whose negative gradient an attention layer adds where its
// weights are tied (docs/decisions/0033-energies.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "fem/options.h"

namespace fem {

// The energy of a query q beside one key, and how those of all keys make one. T is the temperature.
//   kElastic   E_i = |q - k_i|^2 / 2       F = -T log sum_i exp(-E_i / T), a Helmholtz free energy
//   kProduct   E_i = -q.k_i                the same: what kElastic is, up to |q|^2 / 2, where all keys are as long
//   kLinear    E_i = -(q.k_i)^2 / (2 T)    F = sum_i w_i E_i: linear attention; with log_decay gated linear attention
enum class Potential { kElastic, kProduct, kLinear };
template <>
struct Spelling<Potential> {
  static constexpr std::array values{std::pair{std::string_view("elastic"), Potential::kElastic},
                                     std::pair{std::string_view("product"), Potential::kProduct},
                                     std::pair{std::string_view("linear"), Potential::kLinear}};
};

struct EnergyOptions {
  Potential potential = Potential::kElastic;
  std::optional<double> temperature = {};    // unset: the root of K, as attention scales its scores
  bool causal = true;                        // the queries are the last tokens, and each sees the keys up to its own
  std::optional<at::Tensor> log_decay = {};  // [B, Tk, H], kLinear: w_ti = exp(sum of log_decay from i + 1 to t)
};

// query [B, Tq, H, K], key [B, Tk, H, K], at least one key. Heads add up: the energy of a layer is the sum over H.
// Plain ATen, differentiable, Tq x Tk x K numbers at the most.
at::Tensor energy(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options = {});  // [B, Tq, H]

// With respect to the query, keys held fixed: [B, Tq, H, K].
at::Tensor energy_gradient(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options = {});

// The Hessian in the query times a direction [B, Tq, H, K], without making the Hessian.
at::Tensor energy_hessian_product(const at::Tensor& query, const at::Tensor& key, const at::Tensor& direction,
                                  const EnergyOptions& options = {});

struct NewtonStep {
  at::Tensor step;                // [B, Tq, H, K]: minus the (pseudo-)inverse Hessian times the gradient
  at::Tensor smallest_curvature;  // [B, Tq, H]: the Hessian's smallest eigenvalue; below 0 the step need not lead down
};

// Exactly, for looking at: makes and solves K x K Hessians.
NewtonStep newton_step(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options = {});

}  // namespace fem
