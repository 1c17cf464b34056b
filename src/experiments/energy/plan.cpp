#include "experiments/energy/plan.h"

#include "experiments/grid_cost.h"
#include "io/recipe.h"
#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

// A recipe and what a preset changes of it. Blocks are more and narrower than the recipe's: velocities go from block to
// block.
struct Foot {
  std::string recipe;
  json changes = json::object();
};

Foot language_foot(const std::string& preset) {
  if (preset == "large") return {"10m-attention"};
  Foot foot{"500k-attention",
            {{"model", {{"n_embd", 64}, {"n_head", 4}, {"n_layer", 6}, {"mlp_width", 176}}},
             {"data", {{"length", 128}, {"validation_tokens", 32768}}},
             {"train",
              {{"steps", 600},
               {"batch", 16},
               {"validate_every", 50},
               {"checkpoint_every", 200},
               {"keep_checkpoints", 1},
               {"precision", "float32"}}}}};
  if (preset == "smoke")
    foot.changes.merge_patch({{"model", {{"n_layer", 2}}},
                              {"data", {{"length", 32}, {"validation_tokens", 512}, {"final_validation_tokens", 512}}},
                              {"train", {{"steps", 4}, {"batch", 4}, {"warmup_steps", 1}, {"validate_every", 2}}}});
  return foot;
}

Foot lis_foot(const std::string& preset) {
  Foot foot{"mad/longest-increasing", {{"model", {{"n_layer", 4}}}}};
  if (preset == "large")
    foot.changes.merge_patch({{"model", {{"n_embd", 128}, {"n_layer", 8}, {"mlp_width", 352}}},
                              {"data", {{"vocab_size", 128}, {"length", 128}, {"train_examples", 128000}}},
                              {"train", {{"steps", 10000}, {"validate_every", 500}}}});
  if (preset == "smoke")
    foot.changes.merge_patch({{"model", {{"n_layer", 2}}},
                              {"data", {{"train_examples", 64}, {"test_examples", 128}}},
                              {"train", {{"steps", 4}, {"batch", 8}, {"warmup_steps", 1}, {"validate_every", 2}}}});
  return foot;
}

Grid grid_with(const EnergyPlan& plan, const char* second_axis) {
  FEM_CHECK(!plan.variants.empty() && !plan.seeds.empty() && !plan.learning_rates.empty(),
            "energy: expected at least one of --variants, --seeds and --lr each");
  Grid grid{.axes = {"variant", second_axis},
            .seeds = plan.seeds,
            .choices = choices_of({{"train", {{"learning_rate", plan.learning_rates}}}})};
  if (grid.choices.size() > 1) grid.choosing_seeds = {plan.choosing_seed};
  return grid;
}

// The cells of a foot, with what each changes besides.
void add_cells(Grid& grid, const EnergyPlan& plan, const Foot& foot, const std::vector<Variant>& columns) {
  const auto file = find_recipe(foot.recipe);
  const json recipe = load_recipe(file);
  json sized = recipe;
  sized.merge_patch(foot.changes);
  sized["model"]["mixer"]["conv_hidden"] = sized["model"]["n_embd"].get<int64_t>() / 4;
  for (const EnergyVariant& variant : plan.variants) {
    json changes = foot.changes;
    changes.merge_patch(changes_of(variant, sized));
    for (const Variant& column : columns) {
      json own = changes;
      own.merge_patch(column.changes);
      grid.cells.push_back({{variant.label, column.label}, foot.recipe, file, recipe, own});
    }
  }
  check(grid, "energy");
}

}  // namespace

EnergyPlan energy_preset(const std::string& name) {
  FEM_CHECK(name == "smoke" || name == "mini" || name == "large",
            "energy: expected --preset smoke, mini or large, got '", name, "'");
  EnergyPlan plan{.preset = name};
  if (name == "smoke") {
    plan.variants = energy_variants({"attention", "attention+nesterov_query", "fem+momentum"});
    plan.learning_rates = {1e-3, 1e-2};
  }
  return plan;
}

Grid language_grid(const EnergyPlan& plan, const std::vector<LadderText>& texts) {
  FEM_CHECK(!texts.empty(), "energy: expected at least one --text");
  Grid grid = grid_with(plan, "text");
  std::vector<Variant> columns;
  for (const LadderText& text : texts) columns.push_back({text.name, changes_of(text)});
  add_cells(grid, plan, language_foot(plan.preset), columns);
  for (size_t cell = 0; cell < grid.cells.size(); ++cell)
    grid.cells[cell].places = places_of(texts[cell % texts.size()]);
  return grid;
}

Grid lis_grid(const EnergyPlan& plan) {
  Grid grid = grid_with(plan, "task");
  grid.seeded = {"train.seed", "data.seed"};
  add_cells(grid, plan, lis_foot(plan.preset), {{"longest-increasing"}});
  return grid;
}

std::string energy_cost(const Grid& grid) {
  return cost_of(grid, [](const json& recipe) { return recipe.at("data").at("length").get<int64_t>(); });
}

}  // namespace fem
