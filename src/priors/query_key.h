// Queries and keys, of the priors that have them: two projections of one width, the first two linear layers, rotated.
#pragma once

#include "priors/prior.h"
#include "priors/projection.h"

namespace fem {

inline std::vector<ParameterSpec> declare_query_and_key(const MixerOptions& options, const MixerSizes& sizes) {
  std::vector<ParameterSpec> specs;
  declare_linear(specs, "W_q", options.n_embd, sizes.key, options.bias);
  declare_linear(specs, "W_k", options.n_embd, sizes.key, options.bias);
  return specs;
}

struct QueryAndKey {
  at::Tensor query, key;  // [B, T, H, K]
};

// Rotation by the tokens' positions, if there is one, and positive features relu(x) + floor if there is a floor.
inline AfterModulation rotation(const PriorCall& call, std::optional<double> floor = std::nullopt) {
  const MixerOptions& o = call.options;
  if (!o.rotates()) return {};
  return {rotation_of(call.positions, call.sizes.head_key, o.rope_theta, o.dialect), floor, {}};
}

// Sums of phi(k) (v, exp(beta v), 1), as linear_read has them.
inline Memory memory_of_linear_sums(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) {
  const int64_t columns = (options.has_free_energy() ? 2 : 1) * sizes.head_value + 1;
  return memory_of_sums({options.n_head, sizes.head_key, columns}, values);
}

// floor: positive features relu(x) + floor instead.
inline QueryAndKey query_and_key(const PriorCall& call, std::optional<double> floor = std::nullopt) {
  const MixerOptions& options = call.options;
  const AfterModulation after = rotation(call, floor);
  const auto projected = [&](size_t index) {
    const at::Tensor rows = by_head(call.projected[index], options.n_head, call.modulations[index], after);
    return floor && !after.rotation ? at::relu(rows) + *floor : rows;
  };
  return {projected(0), projected(1)};
}

}  // namespace fem
