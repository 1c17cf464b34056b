#include "experiments/mad/mixers.h"

#include <algorithm>
#include <cmath>

#include "fem/backbone.h"
#include "fem/letters.h"
#include "io/language_model_config.h"
#include "io/mixer_config.h"
#include "models/backbone.h"
#include "nn/parameters.h"
#include "util/check.h"
#include "util/nearest.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kUnnormalised = "mamba_unnormalised";
constexpr int64_t kWidthStep = 4;

bool is_prior(const std::string& name) {
  const auto& priors = Spelling<PriorType>::values;
  return name == kUnnormalised ||
         std::any_of(priors.begin(), priors.end(), [&](const auto& prior) { return prior.first == name; });
}

std::vector<std::string> known_mixers() {
  std::vector<std::string> known;
  for (const auto& [name, value] : Spelling<BlockMixer>::values)
    if (value != BlockMixer::kFem) known.emplace_back(name);
  for (const auto& [name, value] : Spelling<PriorType>::values) known.emplace_back(name);
  known.emplace_back(kUnnormalised);
  return known;
}

int64_t parameters_of(const BackboneOptions& options) { return parameter_count(backbone_parameters(options)); }

// The table [model.mixer] of a prior with letters: as wide as with_letters finds it.
json prior_options(const MadMixer& mixer, const BackboneOptions& backbone) {
  MixerOptions options = backbone.mixer;
  options.n_embd = backbone.n_embd;
  options.n_head = backbone.n_head;
  json fields{{"prior_type", mixer.name == kUnnormalised ? "mamba" : mixer.name}, {"dialect", mixer.dialect}};
  if (mixer.name == kUnnormalised) fields["mamba_normalize"] = false;
  json asked = to_json(options);
  asked.update(fields);
  const MixerOptions chosen = with_letters(mixer_options_from_json(asked), mixer.letters).options;
  const json all = to_json(chosen);
  for (const char* name : {"fem_dim", "qk_dim", "conv_hidden", "use_conv", "use_lse", "use_temperature",
                           "use_inner_gate", "use_outer_gate"})
    if (all.contains(name)) fields[name] = all[name];
  return fields;
}

}  // namespace

std::string MadMixer::label() const {
  return name + (letters.empty() ? "" : "+" + letters) + (dialect == "corrected" ? "" : " " + dialect);
}

std::vector<MadMixer> mad_mixers(const std::vector<std::string>& names, const std::vector<std::string>& letters,
                                 const std::vector<std::string>& dialects) {
  const std::vector<std::string> known = known_mixers();
  std::vector<MadMixer> mixers;
  for (const std::string& name : names) {
    FEM_CHECK(
        std::count(known.begin(), known.end(), name) > 0, "mad: expected mixers out of ",
        [&] {
          std::string list;
          for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
          return list;
        }(),
        "; got '", name, "'", did_you_mean(name, known));
    if (!is_prior(name)) {
      mixers.push_back({name, ""});
      continue;
    }
    for (const std::string& dialect : dialects)
      for (const std::string& each : letters) mixers.push_back({name, each == "none" ? "" : each, dialect});
  }
  return mixers;
}

std::vector<MadMixer> table_1() {
  std::vector<MadMixer> rows{{"attention", ""}};
  for (const char* prior : {"softmax", "gla"})
    for (const char* letters : {"CLTG", "", "C", "CL", "CLT", "L", "LT", "LTG"}) rows.push_back({prior, letters});
  for (const char* prior : {"softmax", "gla"}) rows.push_back({prior, "CLTG", "paper"});
  for (const char* prior : {"mamba", "rnn_softmax"})
    for (const char* letters : {"", "CLTG"}) rows.push_back({prior, letters});
  rows.push_back({kUnnormalised, "CLTG"});
  rows.push_back({"linear", ""});
  for (const auto& [name, value] : Spelling<BlockMixer>::values)
    if (value != BlockMixer::kFem && value != BlockMixer::kAttention) rows.push_back({std::string(name), ""});
  return rows;
}

json changes_of(const MadMixer& mixer, const json& recipe) {
  const BackboneOptions given = backbone_options_from_json(recipe.at("model"));
  BackboneOptions attention = given;
  attention.block_mixer = BlockMixer::kAttention;
  attention.mixer = {};
  json model{{"block_mixer", is_prior(mixer.name) ? "fem" : mixer.name}, {"mixer", json::object()}};
  if (is_prior(mixer.name)) model["mixer"] = prior_options(mixer, given);

  json own = recipe.at("model");
  own["mixer"] = json::object();
  own.update(model);
  const BackboneOptions narrow = backbone_options_from_json([&] {
    own["mlp_width"] = kWidthStep;
    return own;
  }());
  // Parameters grow with the MLP's width, three matrices in every block.
  const int64_t wanted = parameters_of(completed(attention, "mad")), least = parameters_of(completed(narrow, "mad"));
  const int64_t a_step = 3 * given.n_embd * given.n_layer * kWidthStep;
  const int64_t steps = std::llround(static_cast<double>(wanted - least) / static_cast<double>(a_step));
  FEM_CHECK(steps >= 0, "mad: ", mixer.label(), " alone has more parameters than attention with its MLP (", least,
            " and ", wanted, "); widen model.mlp_width");
  model["mlp_width"] = kWidthStep * (1 + steps);
  return {{"model", model}};
}

}  // namespace fem
