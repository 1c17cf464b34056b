#include "experiments/images/plan.h"

#include "experiments/grid_cost.h"
#include "io/recipe.h"
#include "tasks/images/task.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kFashion = "fashion-mnist";

// A recipe, and what a preset changes of it.
struct ImageColumn {
  std::string recipe;
  json changes;
};

ImageColumn column_of(const std::string& preset, const std::string& model) {
  if (model != kFashion) {
    // DeiT's 300 passes over ImageNet's 1,281,167 pictures, less the tenth to choose by, in batches of 1,024.
    constexpr int64_t kEpoch = 1126;
    const json training{{"steps", 300 * kEpoch},
                        {"warmup_steps", 5 * kEpoch},
                        {"validate_every", kEpoch},
                        {"checkpoint_every", kEpoch}};
    return {"images/" + model, {{"train", training}}};
  }
  ImageColumn column{"images/fashion-softmax",
                     {{"model", {{"n_layer", 2}}},
                      {"data", {{"folder", kFashionFolder}}},
                      {"train",
                       {{"steps", 900},
                        {"warmup_steps", 45},
                        {"validate_every", 0},
                        {"checkpoint_every", 300},
                        {"keep_best", false}}}}};
  if (preset == "smoke")
    column.changes.merge_patch({{"train", {{"steps", 3}, {"batch", 8}, {"warmup_steps", 1}, {"checkpoint_every", 3}}}});
  return column;
}

}  // namespace

ImagesPlan images_preset(const std::string& name) {
  ImagesPlan plan{.preset = name,
                  .mixers = {{"attention", ""}, {"softmax", "CLTG"}, {"gla", ""}, {"gla", "CLTG"}},
                  .models = {kFashion},
                  .folder = kFashionFolder,
                  .seeds = {1, 2, 3},
                  .learning_rates = {1e-3, 3e-3, 1e-2}};
  if (name == "mini") return plan;
  if (name == "smoke") {
    plan.mixers = {{"attention", ""}, {"gla", "CLTG"}};
    plan.seeds = {1};
    plan.learning_rates = {1e-3, 1e-2};
    return plan;
  }
  FEM_CHECK(name == "paper", "images: expected --preset smoke, mini or paper, got '", name, "'");
  plan.models = {"deit-tiny", "deit-small"};
  plan.folder.clear();
  plan.learning_rates = {1e-3};
  return plan;
}

Grid grid_of(const ImagesPlan& plan) {
  FEM_CHECK(!plan.mixers.empty() && !plan.seeds.empty() && !plan.learning_rates.empty(),
            "images: expected at least one of --mixers, --seeds and --lr each");
  FEM_CHECK(!plan.folder.empty(), "images: expected the folder of ImageNet, with train/ and val/; name it with --data");
  Grid grid{.axes = {"mixer", "model"},
            .seeds = plan.seeds,
            .choices = choices_of({{"train", {{"learning_rate", plan.learning_rates}}}})};
  if (grid.choices.size() > 1) grid.choosing_seeds = {plan.choosing_seed};
  for (const MixerRow& mixer : plan.mixers)
    for (const std::string& model : plan.models) {
      const ImageColumn column = column_of(plan.preset, model);
      const auto file = find_recipe(column.recipe);
      const json recipe = load_recipe(file);
      json sized = recipe;
      sized.merge_patch(column.changes);
      sized["model"].erase("patch");  // the encoder alone is matched
      sized["model"]["mixer"]["conv_hidden"] = sized["model"]["n_embd"].get<int64_t>() / 4;
      json changes = column.changes;
      changes.merge_patch(changes_of(mixer, sized));
      changes.merge_patch({{"model", {{"mixer", {{"causal", false}, {"use_rope", false}}}}}});
      grid.cells.push_back({.labels = {mixer.label(), model},
                            .recipe_name = column.recipe,
                            .recipe_file = file,
                            .recipe = recipe,
                            .changes = changes,
                            .places = {{"data", {{"folder", std::filesystem::absolute(plan.folder).string()}}}}});
    }
  check(grid, "images");
  return grid;
}

std::string images_cost(const Grid& grid) {
  return cost_of(grid, [](const json& recipe) {
    const ImageOptions options = image_options_from_json(recipe);
    const ImageClassifierOptions model = classifier_for(options, images_of(options.data));
    return 1 + (model.height / model.patch) * (model.width / model.patch);
  });
}

}  // namespace fem
