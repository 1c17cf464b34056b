#include <nlohmann/json.hpp>

#include "fem/inspect.h"
#include "io/mixer_config.h"
#include "models/token_mixer.h"
#include "priors/query_key.h"
#include "util/check.h"

namespace fem {

const TokenMixer& fem_mixer();
const TokenMixer& attention_mixer();
const TokenMixer& diff_attention_mixer();
const TokenMixer& hyena_mixer();
const TokenMixer& delta_net_mixer();
const TokenMixer& gated_delta_net_mixer();
const TokenMixer& mamba2_mixer();
const TokenMixer& newton_mixer();
const TokenMixer& newton_light_mixer();
const TokenMixer& linear_descent_mixer();
const TokenMixer& gated_descent_mixer();

const TokenMixer& token_mixer_of(BlockMixer mixer) {
  switch (mixer) {
    case BlockMixer::kFem:
      return fem_mixer();
    case BlockMixer::kAttention:
      return attention_mixer();
    case BlockMixer::kDiffAttention:
      return diff_attention_mixer();
    case BlockMixer::kHyena:
      return hyena_mixer();
    case BlockMixer::kDeltaNet:
      return delta_net_mixer();
    case BlockMixer::kGatedDeltaNet:
      return gated_delta_net_mixer();
    case BlockMixer::kMamba2:
      return mamba2_mixer();
    case BlockMixer::kNewton:
      return newton_mixer();
    case BlockMixer::kNewtonLight:
      return newton_light_mixer();
    case BlockMixer::kLinearDescent:
      return linear_descent_mixer();
    case BlockMixer::kGatedDescent:
      return gated_descent_mixer();
  }
  FEM_CHECK(false, "token_mixer_of: expected one of the mixers in fem/backbone.h, got number ",
            static_cast<int>(mixer));
}

QueryAndKey TokenMixer::queries_and_keys(const BackboneOptions& options, const std::vector<at::Tensor>&,
                                         const MixerInput&) const {
  FEM_CHECK(
      false, "queries_and_keys: block_mixer = \"", spelled(options.block_mixer),
      "\" has no softmax over the products of queries and keys to look at; attention has, and fem with prior softmax");
}

Inspection TokenMixer::inspect(const BackboneOptions& options, const std::vector<at::Tensor>&, const MixerInput&,
                               const Batch&, const std::vector<int64_t>&) const {
  FEM_CHECK(false, "inspect: block_mixer = \"", spelled(options.block_mixer),
            "\" has no selection prior to look at: its weights on tokens have signs, or no sum; fem, attention, newton "
            "and newton_light have one");
}

void check_taken(const MixerOptions& options, const char* who, const std::set<std::string>& taken) {
  const nlohmann::json set = to_json(options), defaults = to_json(MixerOptions());
  for (const auto& [name, value] : set.items())
    FEM_CHECK(name == "n_embd" || name == "n_head" || taken.count(name) || value == defaults[name],
              "block_mixer: ", who, " has no mixer option ", name, "; remove it, or set block_mixer to \"fem\"");
}

}  // namespace fem
