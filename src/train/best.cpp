#include "train/best.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "util/check.h"

namespace fem {

using nlohmann::json;

double value_of(const NamedValues& values, const std::string& name) {
  std::string known;
  for (const auto& [own, value] : values) {
    if (own == name) return value;
    known += (known.empty() ? "" : ", ") + own;
  }
  FEM_CHECK(false, "task: expected a figure '", name, "' among ", known);
}

bool Best::observe(const Goal& goal, const NamedValues& measures, int64_t at_step) {
  const double now = value_of(measures, goal.measure);
  validated = at_step;
  const bool better = std::isfinite(now) && (step < 0 || (goal.larger_is_better ? now > value : now < value));
  if (better) {
    step = at_step;
    value = now;
  }
  since = better ? 0 : since + 1;
  return better;
}

bool Best::reaches(const Goal& goal, double enough) const {
  return step >= 0 && (goal.larger_is_better ? value >= enough : value <= enough);
}

json to_json(const Best& best) {
  return {{"validated", best.validated}, {"step", best.step}, {"value", best.value}, {"since", best.since}};
}

Best best_from_json(const json& in) {
  const std::string whose = "train: the best validation";
  return {integer_in(in, "validated", whose), integer_in(in, "step", whose), number_in(in, "value", whose),
          integer_in(in, "since", whose)};
}

}  // namespace fem
