// Queries and keys, of the priors that have them: two projections of one width, rotated.
#pragma once

#include "priors/prior.h"

namespace fem {

inline constexpr PartName kQuery{"W_q"}, kKey{"W_k"};

inline Part key_part(const MixerOptions& options, const MixerSizes& sizes) {
  return projection(kKey, options, sizes.key, Conditioned::kBeforeGates);
}
inline std::vector<Part> query_and_key_parts(const MixerOptions& options, const MixerSizes& sizes) {
  Part query = projection(kQuery, options, sizes.key, Conditioned::kBeforeGates);
  query.is_query = true;
  return {query, key_part(options, sizes)};
}

// Rotation by the tokens' positions, if there is one, and positive features relu(x) + floor if there is a floor.
inline AfterModulation rotation(const PriorCall& call, std::optional<double> floor = std::nullopt) {
  const MixerOptions& o = call.options;
  if (!o.rotates()) return {};
  return {rotation_of(call.positions, call.sizes.head_key, o.rope_theta, o.dialect), floor, {}};
}

struct QueryAndKey {
  at::Tensor query, key;  // [B, T, H, K]
};

// floor: positive features relu(x) + floor instead.
inline QueryAndKey query_and_key(const PriorCall& call, std::optional<double> floor = std::nullopt) {
  const AfterModulation after = rotation(call, floor);
  const auto features = [&](const PartName& name) {
    const at::Tensor rows = call.by_head(name, after);
    return floor && !after.rotation ? at::relu(rows) + *floor : rows;
  };
  return {features(kQuery), features(kKey)};
}

}  // namespace fem
