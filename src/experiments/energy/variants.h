// What attention as descent is compared by: a mixer and the rule that adds what it says, at equal parameters.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/mixer_rows.h"
#include "fem/backbone.h"

namespace fem {

struct EnergyVariant {
  std::string label;  // "attention+momentum"
  MixerRow mixer;
  ResidualRule residual = ResidualRule::kPlain;
  nlohmann::json options = nlohmann::json::object();  // of the mixer, in [model]
};

// Plain attention first, to which the others are compared.
const std::vector<EnergyVariant>& energy_variants();
// Those with these labels. Throws one sentence for a label that is none.
std::vector<EnergyVariant> energy_variants(const std::vector<std::string>& labels);

// What a variant changes of a recipe's model, which is then as large as plain attention, or nearly.
nlohmann::json changes_of(const EnergyVariant& variant, const nlohmann::json& recipe);

}  // namespace fem
