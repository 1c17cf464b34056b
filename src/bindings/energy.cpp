// Energies as operators: torch.ops.fem.energy and its derivatives.
#include "fem/energy.h"

#include <nlohmann/json.hpp>

#include "bindings/library.h"
#include "io/options_json.h"
#include "ops/operator.h"

namespace fem {
namespace {

EnergyOptions energy_options(std::string_view potential, std::optional<double> temperature, bool causal,
                             const OptionalTensor& log_decay) {
  EnergyOptions options{.temperature = temperature, .causal = causal, .log_decay = log_decay};
  const nlohmann::json in{{"potential", potential}};
  OptionsReader("energy", in)("potential", options.potential, "");
  return options;
}

at::Tensor energy_of(const at::Tensor& query, const at::Tensor& key, std::string_view potential,
                     std::optional<double> temperature, bool causal, const OptionalTensor& log_decay) {
  return energy(query, key, energy_options(potential, temperature, causal, log_decay));
}

at::Tensor gradient_of(const at::Tensor& query, const at::Tensor& key, std::string_view potential,
                       std::optional<double> temperature, bool causal, const OptionalTensor& log_decay) {
  return energy_gradient(query, key, energy_options(potential, temperature, causal, log_decay));
}

at::Tensor hessian_product_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& direction,
                              std::string_view potential, std::optional<double> temperature, bool causal,
                              const OptionalTensor& log_decay) {
  return energy_hessian_product(query, key, direction, energy_options(potential, temperature, causal, log_decay));
}

std::tuple<at::Tensor, at::Tensor> newton_step_of(const at::Tensor& query, const at::Tensor& key,
                                                  std::string_view potential, std::optional<double> temperature,
                                                  bool causal, const OptionalTensor& log_decay) {
  const NewtonStep newton = newton_step(query, key, energy_options(potential, temperature, causal, log_decay));
  return {newton.step, newton.smallest_curvature};
}

}  // namespace

void register_energy(torch::Library& m) {
  const std::string options =
      "str potential=\"elastic\", float? temperature=None, bool causal=True, Tensor? log_decay=None";
  const auto schema = [&](const std::string& name, const std::string& inputs, const std::string& results) {
    return torch::schema((name + "(" + inputs + ", " + options + ") -> " + results).c_str());
  };
  m.def(schema("energy", "Tensor query, Tensor key", "Tensor"), energy_of);
  m.def(schema("energy_gradient", "Tensor query, Tensor key", "Tensor"), gradient_of);
  m.def(schema("energy_hessian_product", "Tensor query, Tensor key, Tensor direction", "Tensor"), hessian_product_of);
  m.def(schema("newton_step", "Tensor query, Tensor key", "(Tensor step, Tensor smallest_curvature)"), newton_step_of);
}

}  // namespace fem
