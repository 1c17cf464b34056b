#include "fem/energy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/checks.h"
#include "util/check.h"

namespace fem {
namespace {

// What counts as no curvature, of the largest: what K products round to, and 1e-10 where that is less.
double singular_below(const at::Tensor& query) {
  const double eps = query.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                        : std::numeric_limits<float>::epsilon();
  return std::max(1e-10, 10 * static_cast<double>(query.size(3)) * eps);
}

// By head, [B, H, T, K], with what all functions below are made of.
struct Energies {
  at::Tensor query, key;
  at::Tensor visible;   // [Tq, Tk]; undefined: all
  at::Tensor weights;   // of the keys [B, H, Tq, Tk]: the Boltzmann distribution, or w of kLinear
  at::Tensor products;  // q.k_i / T
  at::Tensor log_sum;   // [B, H, Tq] log sum_i exp(-E_i / T) without the query's own |q|^2; of free energies
  double temperature;
  Potential potential;

  bool is_free_energy() const { return potential != Potential::kLinear; }
};

void check_energy(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options) {
  const char* who = "energy";
  FEM_CHECK(query.dim() == 4, "energy: expected query of shape [B, Tq, H, K], got ", shape_of(query));
  check_float(who, query);
  check_like(who, "key", key, "query", query, {query.size(0), kAnySize, query.size(2), query.size(3)});
  FEM_CHECK(key.size(1) >= (options.causal ? std::max<int64_t>(query.size(1), 1) : 1),
            "energy: expected at least one key for each query, got ", key.size(1), " keys and ", query.size(1),
            options.causal ? " queries, of which each sees the keys up to its own token" : " queries");
  FEM_CHECK(query.size(3) >= 1, "energy: expected K of at least 1, got ", shape_of(query));
  FEM_CHECK(!options.temperature || (*options.temperature > 0 && std::isfinite(*options.temperature)),
            "energy: expected a positive temperature, got ", *options.temperature);
  if (!options.log_decay) return;
  FEM_CHECK(options.potential == Potential::kLinear,
            "energy: log_decay belongs to the linear potential, whose keys it weighs; leave it out for ",
            spelled(options.potential));
  FEM_CHECK(options.causal, "energy: log_decay weighs the keys before a query: expected causal to be true with it");
  check_like(who, "log_decay", *options.log_decay, "key", key, {key.size(0), key.size(1), key.size(2)});
}

Energies energies_of(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options) {
  check_energy(query, key, options);
  Energies e{.query = query.transpose(1, 2), .key = key.transpose(1, 2), .potential = options.potential};
  e.temperature = options.temperature.value_or(std::sqrt(static_cast<double>(query.size(3))));
  const int64_t queries = query.size(1), keys = key.size(1), before = keys - queries;
  if (options.causal) e.visible = at::ones({queries, keys}, query.options().dtype(at::kBool)).tril(before);
  e.products = at::matmul(e.query, e.key.transpose(-2, -1)) / e.temperature;
  if (e.is_free_energy()) {
    at::Tensor exponent = e.products;
    if (e.potential == Potential::kElastic)
      exponent = exponent - (e.key.square().sum(-1) / (2 * e.temperature)).unsqueeze(-2);
    if (e.visible.defined()) exponent = exponent.masked_fill(e.visible.logical_not(), -INFINITY);
    e.log_sum = exponent.logsumexp(-1);
    e.weights = exponent.softmax(-1);
    return e;
  }
  e.weights = at::ones_like(e.products);
  if (options.log_decay) {
    const at::Tensor sum = options.log_decay->transpose(1, 2).cumsum(-1);  // [B, H, Tk]
    e.weights = sum.slice(-1, before).unsqueeze(-1) - sum.unsqueeze(-2);
    if (e.visible.defined()) e.weights = e.weights.masked_fill(e.visible.logical_not(), -INFINITY);
    e.weights = e.weights.exp();
  } else if (e.visible.defined()) {
    e.weights = e.weights.masked_fill(e.visible.logical_not(), 0);
  }
  return e;
}

// sum_i weights_ti k_i
at::Tensor mixed(const Energies& e, const at::Tensor& weights) { return at::matmul(weights, e.key); }

at::Tensor gradient_by_head(const Energies& e) {
  switch (e.potential) {
    case Potential::kElastic:
      return e.query - mixed(e, e.weights);
    case Potential::kProduct:
      return -mixed(e, e.weights);
    case Potential::kLinear:
      return -mixed(e, e.weights * e.products);
  }
  FEM_CHECK(false, "energy: expected one of the potentials in fem/energy.h, got number ",
            static_cast<int>(e.potential));
}

// Directions [B, H, Tq, K]. Of a free energy the covariance of the keys comes off: Cov g = sum_i p_i (k_i.g - m.g) k_i.
at::Tensor hessian_product_by_head(const Energies& e, const at::Tensor& direction) {
  at::Tensor along = at::matmul(direction, e.key.transpose(-2, -1)) / e.temperature;
  if (e.is_free_energy()) along = along - (e.weights * along).sum(-1, true);
  const at::Tensor curved = -mixed(e, e.weights * along);
  return e.potential == Potential::kElastic ? direction + curved : curved;
}

}  // namespace

at::Tensor energy(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options) {
  const Energies e = energies_of(query, key, options);
  at::Tensor by_head;
  if (e.is_free_energy()) {
    by_head = -e.temperature * e.log_sum;
    if (e.potential == Potential::kElastic) by_head = by_head + e.query.square().sum(-1) / 2;
  } else {
    by_head = (e.weights * e.products.square()).sum(-1) * (-e.temperature / 2);
  }
  return by_head.transpose(1, 2);
}

at::Tensor energy_gradient(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options) {
  return gradient_by_head(energies_of(query, key, options)).transpose(1, 2);
}

at::Tensor energy_hessian_product(const at::Tensor& query, const at::Tensor& key, const at::Tensor& direction,
                                  const EnergyOptions& options) {
  const Energies e = energies_of(query, key, options);
  check_like("energy", "direction", direction, "query", query, query.sym_sizes());
  return hessian_product_by_head(e, direction.transpose(1, 2)).transpose(1, 2);
}

NewtonStep newton_step(const at::Tensor& query, const at::Tensor& key, const EnergyOptions& options) {
  const Energies e = energies_of(query, key, options);
  FEM_CHECK(
      query.scalar_type() != at::kBFloat16,
      "newton_step: expected float32 or float64, which a Hessian can be inverted in, got bfloat16; cast with to()");
  const at::Tensor gradient = gradient_by_head(e);
  // Its columns are the products with unit vectors; it is symmetric.
  std::vector<at::Tensor> columns;
  for (const at::Tensor& unit : at::eye(query.size(3), query.options()).unbind())
    columns.push_back(hessian_product_by_head(e, unit.expand_as(gradient)));
  const at::Tensor hessian = at::stack(columns, -1);
  // Where it is singular, as with fewer keys than dimensions, nothing is done along what it does not see.
  const at::Tensor step =
      -at::matmul(at::linalg_pinv(hessian, singular_below(query), /*hermitian=*/true), gradient.unsqueeze(-1))
           .squeeze(-1);
  return {step.transpose(1, 2), at::linalg_eigvalsh(hessian).select(-1, 0).transpose(1, 2)};
}

}  // namespace fem
