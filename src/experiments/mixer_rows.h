// The rows of the paper's tables, each as what it changes of a recipe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fem {

// A token mixer, or a selection prior with letters in a dialect.
struct MixerRow {
  std::string name;     // attention, delta_net, ...; softmax, gla, ..., mamba_unnormalised
  std::string letters;  // of a prior; none: its mean
  std::string dialect = "corrected";

  std::string label() const;  // "softmax+CLTG", "gla+CLTG paper"
};

// Token mixers that the paper's tables have beside attention and its own.
const std::vector<std::string>& baseline_mixers();

// Of the names each, priors with each of the letters ("none" or letters) and dialects; a name with its own letters,
// "softmax+CL", with these alone. Throws one sentence for a name that is none.
std::vector<MixerRow> mixer_rows(const std::vector<std::string>& names, const std::vector<std::string>& letters,
                                 const std::vector<std::string>& dialects = {"corrected"});

MixerRow mixer_row(const std::string& label);  // "attention", "gla", "softmax+CLTG"

// What a row changes of a recipe's model: the mixer, and the width of the MLP, by which every row has as many
// parameters as plain attention with the recipe's own, or nearly. Options in the recipe's [model.mixer] count for
// priors.
nlohmann::json changes_of(const MixerRow& row, const nlohmann::json& recipe);

}  // namespace fem
