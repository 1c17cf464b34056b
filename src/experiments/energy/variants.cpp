#include "experiments/energy/variants.h"

#include <algorithm>

#include "util/check.h"
#include "util/nearest.h"

namespace fem {

using nlohmann::json;

const std::vector<EnergyVariant>& energy_variants() {
  const MixerRow attention{"attention", ""}, newton{"newton", ""}, light{"newton_light", ""}, fem{"softmax", "CLTG"};
  static const std::vector<EnergyVariant> variants{
      {"attention", attention},
      {"attention+gain", attention, ResidualRule::kGain},
      {"attention+momentum", attention, ResidualRule::kMomentum},
      {"attention+nesterov", attention, ResidualRule::kNesterov},
      {"attention+nesterov_query", attention, ResidualRule::kNesterovQuery},
      {"newton", newton},
      {"newton_light", light},
      {"newton_light_isotropic", light, ResidualRule::kPlain, {{"curvature", "isotropic"}}},
      {"fem", fem},
      {"fem+momentum", fem, ResidualRule::kMomentum},
      {"fem+nesterov", fem, ResidualRule::kNesterov},
  };
  return variants;
}

std::vector<EnergyVariant> energy_variants(const std::vector<std::string>& labels) {
  std::vector<std::string> known;
  for (const EnergyVariant& variant : energy_variants()) known.push_back(variant.label);
  std::vector<EnergyVariant> variants;
  for (const std::string& label : labels) {
    const auto found = std::find(known.begin(), known.end(), label);
    FEM_CHECK(found != known.end(), "energy: expected variants such as ", known[0], " or ", known[2], ", got '", label,
              "'", did_you_mean(label, known));
    variants.push_back(energy_variants()[static_cast<size_t>(found - known.begin())]);
  }
  return variants;
}

json changes_of(const EnergyVariant& variant, const json& recipe) {
  json changes = changes_of(variant.mixer, recipe);
  changes["model"]["residual"] = spelled(variant.residual);
  changes["model"].update(variant.options);
  return changes;
}

}  // namespace fem
