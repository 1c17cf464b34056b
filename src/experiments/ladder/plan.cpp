#include "experiments/ladder/plan.h"

#include "io/recipe.h"
#include "util/check.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The part of a recipe that names a text's files, each as `spell` has it.
template <typename Spell>
json files_of(const LadderText& text, Spell spell) {
  json data{{"train", json::array({spell(text.train)})}};
  if (!text.validation.empty()) data["validation"] = json::array({spell(text.validation)});
  return {{"data", data}};
}

}  // namespace

LadderText ladder_text(const std::string& assignment) {
  const size_t equals = assignment.find('='), comma = assignment.find(',', equals);
  FEM_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < assignment.size(),
            "--text: expected NAME=FILE or NAME=TRAINING,VALIDATION, got '", assignment, "'");
  LadderText text{assignment.substr(0, equals), assignment.substr(equals + 1, comma - equals - 1), {}};
  if (comma != std::string::npos) text.validation = assignment.substr(comma + 1);
  return text;
}

json changes_of(const LadderText& text) {
  return files_of(text, [](const fs::path& file) { return file.filename().string(); });
}

json places_of(const LadderText& text) {
  return files_of(text, [](const fs::path& file) { return fs::absolute(file).string(); });
}

void expect_files(const LadderText& text) {
  for (const std::string& file : {text.train, text.validation})
    FEM_CHECK(file.empty() || fs::exists(file), "ladder: expected ", file, ", which --text ", text.name,
              " names; there is no such file");
}

Grid grid_of(const LadderPlan& plan) {
  FEM_CHECK(!plan.mixers.empty() && !plan.texts.empty() && !plan.seeds.empty() && !plan.learning_rates.empty(),
            "ladder: expected at least one of --priors, --text, --seeds and --lr each");
  Grid grid{.axes = {"mixer", "text"},
            .seeds = plan.seeds,
            .choices = choices_of({{"train", {{"learning_rate", plan.learning_rates}}}})};
  if (grid.choices.size() > 1) grid.choosing_seeds = {plan.choosing_seed};
  const auto file = find_recipe(plan.recipe);
  const json recipe = load_recipe(file);
  json sized = recipe;
  sized["model"]["mixer"]["conv_hidden"] = 32;  // as the 500k recipes of the full mixers have it
  for (const MixerRow& mixer : plan.mixers) {
    const json model = changes_of(mixer, sized);
    const size_t first = grid.cells.size();
    for (const LadderText& text : plan.texts) {
      json changes = model;
      changes["train"]["steps"] = plan.steps;
      changes.merge_patch(changes_of(text));
      grid.cells.push_back({.labels = {mixer.label(), text.name},
                            .recipe_name = plan.recipe,
                            .recipe_file = file,
                            .recipe = recipe,
                            .changes = changes,
                            .places = places_of(text),
                            .chosen_at = first});
    }
  }
  check(grid, "ladder");
  return grid;
}

std::string ladder_table(const Grid& grid, const std::vector<SweepRow>& rows) {
  std::vector<std::string> texts;  // every mixer has one row for each, in this order
  for (const SweepRow& row : rows)
    if (row.labels[0] == rows[0].labels[0]) texts.push_back(row.labels[1]);
  std::vector<std::string> header{"mixer", "parameters", "chosen"};
  header.insert(header.end(), texts.begin(), texts.end());
  Table table(header);
  for (auto first = rows.begin(); first != rows.end(); first += static_cast<ptrdiff_t>(texts.size())) {
    std::vector<std::string> line{first->labels[0], first->parameters > 0 ? grouped(first->parameters) : "-",
                                  first->choice.empty() ? "-" : first->choice};
    for (size_t text = 0; text < texts.size(); ++text) {
      line.emplace_back("-");
      for (const auto& [measure, summary] : first[static_cast<ptrdiff_t>(text)].measures)
        if (measure == "loss" && summary.count == grid.seeds.size()) line.back() = summary.text(4);
    }
    table.add(line);
  }
  return table.str();
}

}  // namespace fem
