#include "experiments/mixer_rows.h"

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
json prior_options(const MixerRow& row, const BackboneOptions& backbone) {
  MixerOptions options = backbone.mixer;
  options.n_embd = backbone.n_embd;
  options.n_head = backbone.n_head;
  json fields{{"prior_type", row.name == kUnnormalised ? "mamba" : row.name}, {"dialect", row.dialect}};
  if (row.name == kUnnormalised) fields["mamba_normalize"] = false;
  json asked = to_json(options);
  asked.update(fields);
  const MixerOptions chosen = with_letters(mixer_options_from_json(asked), row.letters).options;
  const json all = to_json(chosen);
  for (const char* name : {"fem_dim", "qk_dim", "conv_hidden", "use_conv", "use_lse", "use_temperature",
                           "use_inner_gate", "use_outer_gate"})
    if (all.contains(name)) fields[name] = all[name];
  return fields;
}

}  // namespace

std::string MixerRow::label() const {
  return name + (letters.empty() ? "" : "+" + letters) + (dialect == "corrected" ? "" : " " + dialect);
}

const std::vector<std::string>& baseline_mixers() {
  static const std::vector<std::string> names{"diff_attention", "hyena", "delta_net", "gated_delta_net", "mamba2"};
  return names;
}

std::vector<MixerRow> mixer_rows(const std::vector<std::string>& names, const std::vector<std::string>& letters,
                                 const std::vector<std::string>& dialects) {
  const std::vector<std::string> known = known_mixers();
  std::vector<MixerRow> rows;
  for (const std::string& label : names) {
    const size_t plus = label.find('+');
    const std::string name = label.substr(0, plus);
    FEM_CHECK(
        std::count(known.begin(), known.end(), name) > 0, "mixers: expected mixers out of ",
        [&] {
          std::string list;
          for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
          return list;
        }(),
        "; got '", name, "'", did_you_mean(name, known));
    if (!is_prior(name)) {
      FEM_CHECK(plus == std::string::npos, "mixers: expected letters behind a prior such as softmax, got '", label,
                "'; ", name, " has none");
      rows.push_back({name, ""});
      continue;
    }
    const std::vector<std::string> own =
        plus == std::string::npos ? letters : std::vector<std::string>{label.substr(plus + 1)};
    for (const std::string& dialect : dialects)
      for (const std::string& each : own) rows.push_back({name, each == "none" ? "" : each, dialect});
  }
  return rows;
}

MixerRow mixer_row(const std::string& label) { return mixer_rows({label}, {"none"}).at(0); }

json changes_of(const MixerRow& row, const json& recipe) {
  const BackboneOptions given = backbone_options_from_json(recipe.at("model"));
  BackboneOptions attention = given;
  attention.block_mixer = BlockMixer::kAttention;
  attention.mixer = {};
  json model{{"block_mixer", is_prior(row.name) ? "fem" : row.name}, {"mixer", json::object()}};
  if (is_prior(row.name)) model["mixer"] = prior_options(row, given);

  json own = recipe.at("model");
  own["mixer"] = json::object();
  own.update(model);
  const BackboneOptions narrow = backbone_options_from_json([&] {
    own["mlp_width"] = kWidthStep;
    return own;
  }());
  // Parameters grow with the MLP's width, two or three matrices in every block.
  const int64_t wanted = parameters_of(completed(attention, "mixers")),
                least = parameters_of(completed(narrow, "mixers"));
  const int64_t a_step = (given.mlp == MlpType::kSwiglu ? 3 : 2) * given.n_embd * given.n_layer * kWidthStep;
  const int64_t steps = std::llround(static_cast<double>(wanted - least) / static_cast<double>(a_step));
  FEM_CHECK(steps >= 0, "mixers: ", row.label(), " alone has more parameters than attention with its MLP (", least,
            " and ", wanted, "); widen model.mlp_width");
  model["mlp_width"] = kWidthStep * (1 + steps);
  return {{"model", model}};
}

}  // namespace fem
