// The mixers of the paper's Table 1, each as what it changes of a recipe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fem {

// A row: a token mixer, or a selection prior with letters in a dialect.
struct MadMixer {
  std::string name;     // attention, delta_net, ...; softmax, gla, ..., mamba_unnormalised
  std::string letters;  // of a prior: "" or "none" is its mean
  std::string dialect = "corrected";

  std::string label() const;  // "softmax+CLTG", "gla+CLTG paper"
};

// Of the names each, priors with each of the letters and dialects. Throws one sentence for a name that is none.
std::vector<MadMixer> mad_mixers(const std::vector<std::string>& names, const std::vector<std::string>& letters,
                                 const std::vector<std::string>& dialects);

// The rows of Table 1 and, beside the full mixers, those of dialect paper.
std::vector<MadMixer> table_1();

// What a row changes of a recipe for the task mad: the mixer, and the width of the MLP, by which every row has as many
// parameters as plain attention with the recipe's own, or nearly.
nlohmann::json changes_of(const MadMixer& mixer, const nlohmann::json& recipe);

}  // namespace fem
