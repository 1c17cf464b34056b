// One query over n keys: the read as the paper's statements speak of it, with its prior and posterior.
#pragma once

#include <rapidcheck.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "fem/ops/gated_read.h"
#include "fem/ops/softmax_read.h"
#include "support/tolerance.h"

namespace fem::testing {

struct OneQuery {
  at::Tensor scores;             // [n]
  at::Tensor value;              // [n, V]
  at::Tensor beta;               // [V]
  at::Tensor mean, free_energy;  // [V]
  at::Tensor prior, posterior;   // p [n, 1], q [n, V]: by their formulas, not by the operator

  OneQuery(at::Tensor scores_, at::Tensor value_, at::Tensor beta_) : scores(scores_), value(value_), beta(beta_) {
    const Read read = of(scores, value, beta);
    mean = read.mean;
    free_energy = read.free_energy;
    prior = at::softmax(scores, 0).unsqueeze(1);
    posterior = at::softmax(scores.unsqueeze(1) + beta * value, 0);
  }

  // The operator under test: scores become those of one query with key width 1.
  static Read of(const at::Tensor& scores, const at::Tensor& value, const at::Tensor& beta) {
    const int64_t n = value.size(0), width = value.size(1);
    const SoftmaxRead read =
        softmax_read(at::ones({1, 1, 1, 1}, value.options()), scores.view({1, n, 1, 1}), value.view({1, n, 1, width}),
                     beta.view({1, width}), {.scale = 1.0, .causal = false});
    return {read.mean.view({width}), read.free_energy.view({width})};
  }

  // The read of the same prior and values at other temperatures [V].
  at::Tensor at_temperature(const at::Tensor& other) const { return of(scores, value, other).free_energy; }

  // The weights with which the operator reads: its gradient by the values, [n, V].
  static at::Tensor weights(const at::Tensor& value, const std::function<at::Tensor(const at::Tensor&)>& read) {
    const at::Tensor leaf = value.detach().clone().requires_grad_();
    return torch::autograd::grad({read(leaf).sum()}, {leaf})[0];
  }
  at::Tensor posterior_at(const at::Tensor& other) const {
    return weights(value, [&](const at::Tensor& v) { return of(scores, v, other).free_energy; });
  }
};

// gated_read of one query, all [V].
inline at::Tensor gate_one(const Read& read, const at::Tensor& temperature_logit,
                           const std::optional<at::Tensor>& gate_logit = std::nullopt) {
  const auto row = [](const at::Tensor& x) { return x.view({1, 1, 1, -1}); };
  return gated_read({row(read.mean), row(read.free_energy)}, row(temperature_logit),
                    gate_logit ? std::optional(row(*gate_logit)) : std::nullopt)
      .view({-1});
}

// KL(a||b) over the tokens, where a may be 0.
inline at::Tensor divergence(const at::Tensor& a, const at::Tensor& b) {
  return (at::xlogy(a, a) - at::xlogy(a, b)).sum(0);
}

inline OneQuery random_query() {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(1, 40);
  const auto width = *rc::gen::inRange<int64_t>(1, 6);
  const auto options = at::TensorOptions(at::kDouble);
  return OneQuery(2 * at::randn({n}, options), at::randn({n, width}, options), at::rand({width}, options) * 4 + 0.05);
}

// Values of a channel differ by at least 1/n and lie within [0, 2): what is strict in theory is so in float64.
inline OneQuery random_query_of_distinct_values() {
  at::manual_seed(*rc::gen::arbitrary<uint32_t>());
  const auto n = *rc::gen::inRange<int64_t>(2, 20);
  const auto width = *rc::gen::inRange<int64_t>(1, 6);
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor rank = at::rand({n, width}, options).argsort(0, false).to(at::kDouble);
  const at::Tensor value = (rank + at::rand({n, width}, options) / 2) * (2.0 / static_cast<double>(n));
  return OneQuery(at::randn({n}, options), value, at::rand({width}, options) * 4 + 0.05);
}

inline bool holds(const at::Tensor& condition) { return condition.all().item<bool>(); }
inline bool same(const at::Tensor& a, const at::Tensor& b) { return holds((a - b).abs() <= kSlack * (1 + b.abs())); }

// x in [low, high] where an increasing function, element by element, reaches the target.
inline at::Tensor solve(const std::function<at::Tensor(const at::Tensor&)>& increasing, const at::Tensor& target,
                        at::Tensor low, at::Tensor high) {
  for (int i = 0; i < 50; ++i) {
    const at::Tensor middle = (low + high) / 2, below = increasing(middle) < target;
    low = at::where(below, middle, low);
    high = at::where(below, high, middle);
  }
  return high;
}

// Second derivatives of a scalar function of a vector.
inline at::Tensor hessian(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& at) {
  const at::Tensor x = at.detach().clone().requires_grad_();
  const at::Tensor gradient = torch::autograd::grad({function(x)}, {x}, {}, true, /*create_graph=*/true)[0];
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < x.numel(); ++i) rows.push_back(torch::autograd::grad({gradient[i]}, {x}, {}, true)[0]);
  return at::stack(rows);
}

// The covariance of a token drawn from r: J(r) = Diag(r) - r r^T.
inline at::Tensor covariance(const at::Tensor& r) { return r.diag() - r.outer(r); }

}  // namespace fem::testing
