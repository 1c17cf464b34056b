#include "experiments/energy/toy.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <functional>

#include "fem/energy.h"
#include "io/folder_lock.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

// Queries [1, Q, 1, K] and what is left of their last steps.
struct Place {
  at::Tensor query, velocity;
};

struct Descent {
  at::Tensor key;
  EnergyOptions options;
  double rate, decay;

  at::Tensor gradient(const at::Tensor& query) const { return energy_gradient(query, key, options); }
  at::Tensor curved(const at::Tensor& query, const at::Tensor& direction) const {
    return energy_hessian_product(query, key, direction, options);
  }
  // The diagonal of the Hessian, [1, Q, 1, K].
  at::Tensor curvatures(const at::Tensor& query) const {
    std::vector<at::Tensor> all;
    const at::Tensor units = at::eye(query.size(3), query.options());
    for (int64_t i = 0; i < units.size(0); ++i) all.push_back(curved(query, units[i].expand_as(query)).select(-1, i));
    return at::stack(all, -1);
  }
  Place moved(const Place& at, const at::Tensor& velocity) const { return {at.query + velocity, velocity}; }
};

using Step = std::function<Place(const Descent& on, const Place& at)>;

// Minus the gradient, and what each rule makes of it. The Hessian is I - Cov / T: to the first order its inverse is
// I + Cov / T = 2 I - H, of which the light forms keep the diagonal, or its mean.
const std::vector<std::pair<std::string, Step>>& steps_by_rule() {
  static const std::vector<std::pair<std::string, Step>> steps{
      {"descent", [](const Descent& on, const Place& at) { return on.moved(at, -on.rate * on.gradient(at.query)); }},
      {"descent, longer step",
       [](const Descent& on, const Place& at) {
         return on.moved(at, -on.rate / (1 - on.decay) * on.gradient(at.query));
       }},
      {"momentum",
       [](const Descent& on, const Place& at) {
         return on.moved(at, on.decay * at.velocity - on.rate * on.gradient(at.query));
       }},
      {"nesterov",
       [](const Descent& on, const Place& at) {
         const at::Tensor ahead = on.decay * at.velocity;
         return on.moved(at, ahead - on.rate * on.gradient(at.query + ahead));
       }},
      {"newton, first order",
       [](const Descent& on, const Place& at) {
         const at::Tensor gradient = on.gradient(at.query);
         return on.moved(at, -on.rate * (2 * gradient - on.curved(at.query, gradient)));
       }},
      {"newton, light diagonal",
       [](const Descent& on, const Place& at) {
         return on.moved(at, -on.rate * (2 - on.curvatures(at.query)) * on.gradient(at.query));
       }},
      {"newton, light isotropic",
       [](const Descent& on, const Place& at) {
         return on.moved(at, -on.rate * (2 - on.curvatures(at.query).mean(-1, true)) * on.gradient(at.query));
       }},
      {"newton, exact",
       [](const Descent& on, const Place& at) {
         return on.moved(at, on.rate * newton_step(at.query, on.key, on.options).step);
       }},
      {"newton, exact and whole",
       [](const Descent& on, const Place& at) { return on.moved(at, newton_step(at.query, on.key, on.options).step); }},
  };
  return steps;
}

const Step& step_of(const std::string& rule) {
  for (const auto& [name, step] : steps_by_rule())
    if (name == rule) return step;
  FEM_CHECK(false, "energy: expected a rule of the toy such as momentum, got '", rule, "'");
}

}  // namespace

std::vector<std::string> toy_rules() {
  std::vector<std::string> rules;
  for (const auto& [name, step] : steps_by_rule()) rules.push_back(name);
  return rules;
}

ToyRun run_toy(const ToyPlan& plan, const std::string& rule, double temperature, int64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  const auto drawn = [&](int64_t rows) { return at::randn({1, rows, 1, plan.width}, generator, at::kDouble); };
  // Keys as long as a normal vector is on average: all alike, so that the weights are those of attention.
  const at::Tensor random = drawn(plan.keys);
  const at::Tensor key = random * (std::sqrt(static_cast<double>(plan.width)) / random.norm(2, -1, true));
  const Descent on{key, {.temperature = temperature, .causal = false}, plan.rate, plan.decay};
  Place at{drawn(plan.queries), at::zeros({1, plan.queries, 1, plan.width}, at::kDouble)};

  ToyRun run;
  run.indefinite =
      newton_step(at.query, key, on.options).smallest_curvature.lt(0).to(at::kDouble).mean().item<double>();
  const at::Tensor first = energy(at.query, key, on.options);
  at::Tensor last = first;
  run.energy.push_back(first.median().item<double>());
  for (int64_t layer = 0; layer < plan.layers; ++layer) {
    at = step_of(rule)(on, at);
    last = energy(at.query, key, on.options);
    run.energy.push_back(last.median().item<double>());
  }
  run.risen = last.gt(first).to(at::kDouble).mean().item<double>();
  return run;
}

Grid toy_grid(const ToyPlan& plan) {
  FEM_CHECK(!plan.seeds.empty() && !plan.temperatures.empty(),
            "energy: expected at least one of --seeds and --temperatures each");
  for (const double temperature : plan.temperatures)
    FEM_CHECK(temperature > 0 && std::isfinite(temperature), "energy: expected positive temperatures, got ",
              temperature);
  Grid grid{.axes = {"rule", "temperature"}, .seeds = plan.seeds, .choices = {{}}, .seeded = {"seed"}};
  for (const std::string& rule : toy_rules())
    for (const double temperature : plan.temperatures) {
      const json recipe{{"rule", rule},        {"temperature", temperature}, {"keys", plan.keys},
                        {"width", plan.width}, {"queries", plan.queries},    {"layers", plan.layers},
                        {"rate", plan.rate},   {"decay", plan.decay}};
      grid.cells.push_back({{rule, json(temperature).dump()}, "toy", {}, recipe});
    }
  check(grid, "energy");
  return grid;
}

void run_toy(const ToyPlan& plan, const std::filesystem::path& out) {
  const Grid grid = toy_grid(plan);
  std::filesystem::create_directories(out);
  const FolderLock only(out, "energy");
  SweepResults results(sweep_results_path(out));
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    for (const int64_t seed : grid.seeds) {
      const GridRun run = run_of(grid, cell, 0, seed);
      if (results.finished(run)) continue;
      const ToyRun done = run_toy(plan, run.recipe["rule"], run.recipe["temperature"], seed);
      Json curve = Json::array();
      for (size_t layer = 0; layer < done.energy.size(); ++layer)
        curve.push_back({static_cast<int64_t>(layer), done.energy[layer]});
      results.add_finished(
          grid, run,
          {{"parameters", 0},
           {"goal", {{"measure", "free_energy"}, {"larger_is_better", false}}},
           {"measures", {{"free_energy", done.energy.back()}, {"risen", done.risen}, {"indefinite", done.indefinite}}},
           {"curve", curve}});
    }
  }
}

}  // namespace fem
