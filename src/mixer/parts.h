// The one list of what the layer is made of, beside its conditioner: value, output, the prior's parts, the gates.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "priors/prior.h"
#include "util/check.h"

namespace fem {

inline constexpr PartName kValue{"W_v"}, kOutput{"W_o"}, kTemperatureGate{"W_lambda"}, kOuterGate{"W_gate"};

// Calls visit(part, weights) for every part in the order of the parameters, weights being its place in w.
template <typename Weights, typename Visit>
void visit_parts(const MixerOptions& o, const MixerSizes& s, Weights& w, const Visit& visit) {
  std::vector<Part> of_prior = prior_of(o.prior_type).parts(o, s);
  if constexpr (!std::is_const_v<Weights>) w.prior.resize(of_prior.size());
  FEM_CHECK(w.prior.size() == of_prior.size(), "mix: expected weights with ", of_prior.size(), " parts of prior ",
            spelled(o.prior_type), ", got ", w.prior.size(), "; weights belong to the options they were made for");

  visit(projection(kValue, o, s.value, Conditioned::kBeforeGates), w.value);
  visit(Part{&kOutput, Part::Kind::kOutput, {o.n_embd, s.value}, Conditioned::kNot, o.bias}, w.output);
  for (size_t i = 0; i < of_prior.size(); ++i) {
    of_prior[i].added = rules_of(o.dialect).adds_to_prior;
    visit(std::move(of_prior[i]), w.prior[i]);
  }
  if (o.has_inner_gate()) visit(projection(kTemperatureGate, o, s.value, Conditioned::kGate), w.temperature_gate);
  if (o.use_outer_gate) visit(projection(kOuterGate, o, s.value, Conditioned::kGate), w.outer_gate);
}

// Whether the prior has queries, which can be made of an input of their own.
inline bool has_queries(const MixerOptions& options) {
  const std::vector<Part> parts = prior_of(options.prior_type).parts(options, sizes_of(options));
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_query; });
}

}  // namespace fem
