#include "train/grid.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "io/options_json.h"
#include "io/recipe.h"
#include "train/options.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Calls visit("train.learning_rate", value) for everything that is no table, and for empty ones.
void for_each_setting(const json& changes, const std::string& prefix,
                      const std::function<void(const std::string&, const json&)>& visit) {
  for (const auto& [name, value] : changes.items())
    value.is_object() && !value.empty() ? for_each_setting(value, prefix + name + ".", visit)
                                        : visit(prefix + name, value);
}

std::string file_name(const std::string& label) {
  std::string name = label;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string("._=+-").find(c) == std::string::npos) c = '_';
  return name;
}

std::vector<int64_t> seeds_of(const json& in, const std::string& whose) {
  const bool fits = in.is_array() && !in.empty() && std::all_of(in.begin(), in.end(), [](const json& seed) {
                      return seed.is_number_integer() && seed.get<int64_t>() >= 0;
                    });
  FEM_CHECK(fits, "grid: expected ", whose, " to be a list of whole numbers from 0, such as [1, 2, 3], got ",
            in.dump());
  return in.get<std::vector<int64_t>>();
}

void expect_table(const json& in, const std::string& whose) {
  FEM_CHECK(in.is_object() && !in.empty(), "grid: expected a table [", whose, "], got ", in.dump());
}

// Changes of a recipe: a table, whose own table of the trainer, if there is one, takes the seed.
void expect_settings(const json& in, const std::string& whose) {
  FEM_CHECK(in.is_object() && in.value("train", json::object()).is_object(), "grid: expected a table [", whose,
            "], whose train is a table, got ", in.dump());
}

constexpr size_t kMostCombinations = 100'000;

// Refuses combinations before they are made; an exponent of values is quickly written.
void check_count(size_t combinations, size_t values) {
  FEM_CHECK(combinations * values <= kMostCombinations, "grid: expected at most ", kMostCombinations,
            " combinations of values, got ", combinations * values, " or more");
}

std::vector<Cell> cells_of(const json& axes, const Cell& common) {
  std::vector<Cell> cells{common};
  for (const auto& [axis, values] : axes.items()) {
    expect_table(values, "axes." + axis);
    check_count(cells.size(), values.size());
    std::vector<Cell> more;
    for (const Cell& cell : cells) {
      for (const auto& [label, changes] : values.items()) {
        expect_table(changes, "axes." + axis + "." + label);
        Cell next = cell;
        json own = changes;
        if (own.contains("recipe")) {
          FEM_CHECK(own["recipe"].is_string(), "grid: expected axes.", axis, ".", label,
                    ".recipe to be a recipe's name, got ", own["recipe"].dump());
          next.recipe_name = own["recipe"];
          own.erase("recipe");
        }
        expect_settings(own, "axes." + axis + "." + label);
        next.labels.push_back(label);
        next.changes.merge_patch(own);
        more.push_back(std::move(next));
      }
    }
    cells = std::move(more);
  }
  return cells;
}

std::vector<std::string> labels_of(const std::vector<Variant>& choices) {
  std::vector<std::string> labels;
  for (const Variant& choice : choices) labels.push_back(choice.label);
  return labels;
}

// A path of names, as --set takes it.
bool is_setting(const json& in) {
  return in.is_string() && !in.get<std::string>().empty() && in.get<std::string>().find('=') == std::string::npos;
}

}  // namespace

std::vector<Variant> choices_of(const json& settings) {
  std::vector<Variant> choices{{}};
  for_each_setting(settings, "", [&](const std::string& name, const json& values) {
    FEM_CHECK(values.is_array() && !values.empty(), "grid: expected choose.settings.", name,
              " to be a list of values to choose from, got ", values.dump());
    check_count(choices.size(), values.size());
    std::vector<Variant> more;
    for (const Variant& choice : choices) {
      for (const json& value : values) {
        Variant next = choice;
        next.label += (next.label.empty() ? "" : " ") + name.substr(name.rfind('.') + 1) + "=" +
                      (value.is_string() ? value.get<std::string>() : value.dump());
        set_value(next.changes, name + "=" + value.dump());
        more.push_back(std::move(next));
      }
    }
    choices = std::move(more);
  });
  return choices;
}

const std::vector<Variant>& choices_at(const Grid& grid, size_t cell) {
  const std::vector<Variant>& own = grid.cells[cell].choices;
  return own.empty() ? grid.choices : own;
}

size_t chooser_of(const Grid& grid, size_t cell) { return grid.cells[cell].chosen_at.value_or(cell); }

const std::vector<int64_t>& choosing_seeds_at(const Grid& grid, size_t cell) {
  static const std::vector<int64_t> none;
  return choices_at(grid, cell).size() > 1 ? grid.choosing_seeds : none;
}

int64_t runs_at(const Grid& grid, size_t cell) {
  const size_t choosing =
      chooser_of(grid, cell) == cell ? choices_at(grid, cell).size() * choosing_seeds_at(grid, cell).size() : 0;
  return static_cast<int64_t>(choosing + grid.seeds.size());
}

int64_t GridRun::steps() const { return train_options_from_json(recipe.value("train", json::object())).steps; }

Grid load_grid(const fs::path& path) {
  const json in = load_recipe(path);
  OptionsReader fields("grid: " + path.string(), in);
  for (const char* name : {"recipe", "seeds", "seeded", "axes", "set", "choose"}) fields.skip(name);
  fields.finish();
  FEM_CHECK(in.contains("recipe") && in["recipe"].is_string(), "grid: ", path.string(),
            ": expected recipe = \"...\", the recipe that the runs change");
  FEM_CHECK(in.contains("seeds"), "grid: ", path.string(), ": expected seeds = [...], the seeds that are reported");

  Grid grid{.seeds = seeds_of(in["seeds"], "seeds"), .choices = {{}}};
  if (in.contains("seeded")) {
    const json& seeded = in["seeded"];
    FEM_CHECK(seeded.is_array() && !seeded.empty() && std::all_of(seeded.begin(), seeded.end(), is_setting),
              "grid: ", path.string(),
              ": expected seeded to be a list of settings, such as [\"train.seed\", \"data.seed\"], got ",
              seeded.dump());
    grid.seeded = seeded.get<std::vector<std::string>>();
  }
  Cell common{.recipe_name = in["recipe"], .changes = in.value("set", json::object())};
  expect_settings(common.changes, "set");
  const json axes = in.value("axes", json::object());
  FEM_CHECK(axes.is_object(), "grid: expected a table [axes], got ", axes.dump());
  for (const auto& [axis, values] : axes.items()) grid.axes.push_back(axis);
  grid.cells = cells_of(axes, common);
  for (Cell& cell : grid.cells) {
    cell.recipe_file = find_recipe(cell.recipe_name, path.parent_path());
    cell.recipe = load_recipe(cell.recipe_file);
  }
  if (in.contains("choose")) {
    const json& choose = in["choose"];
    FEM_CHECK(choose.is_object() && choose.size() == 2 && choose.contains("seeds") && choose.contains("settings"),
              "grid: ", path.string(), ": expected [choose] with seeds and [choose.settings], got ", choose.dump());
    grid.choosing_seeds = seeds_of(choose["seeds"], "choose.seeds");
    expect_table(choose["settings"], "choose.settings");
    expect_settings(choose["settings"], "choose.settings");
    grid.choices = choices_of(choose["settings"]);
  }
  check(grid, "grid: " + path.string());
  return grid;
}

void check(const Grid& grid, const std::string& whose) {
  for (const auto* seeds : {&grid.seeds, &grid.choosing_seeds})
    for (const int64_t seed : *seeds)
      FEM_CHECK(std::count(seeds->begin(), seeds->end(), seed) == 1, whose, ": expected every seed once, got ", seed,
                " twice");
  for (const int64_t seed : grid.choosing_seeds)
    FEM_CHECK(std::count(grid.seeds.begin(), grid.seeds.end(), seed) == 0, whose, ": seed ", seed,
              " is one to choose by and one to report; what is chosen by a seed looks better on it than it is");
  std::set<std::string> names;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    const size_t chooser = chooser_of(grid, cell);
    FEM_CHECK(chooser < grid.cells.size() && chooser_of(grid, chooser) == chooser &&
                  labels_of(choices_at(grid, chooser)) == labels_of(choices_at(grid, cell)),
              whose, ": expected cell ", cell, " to take over the choice of one that has the same choices, got cell ",
              chooser);
    for (size_t choice = 0; choice < choices_at(grid, cell).size(); ++choice) {
      const std::string name = run_of(grid, cell, choice, 0).name;
      FEM_CHECK(names.insert(name).second, whose, ": two values of the axes or of a choice give runs of one name, ",
                name, "; rename or remove one");
    }
  }
}

GridRun run_of(const Grid& grid, size_t cell, size_t choice, int64_t seed) {
  const Cell& place = grid.cells[cell];
  const Variant& variant = choices_at(grid, cell)[choice];
  GridRun run{.cell = cell, .choice = choice, .seed = seed, .recipe_file = place.recipe_file, .recipe = place.recipe};
  for (const std::string& label : place.labels) run.name += file_name(label) + "-";
  if (!variant.label.empty()) run.name += file_name(variant.label) + "-";
  run.name += "seed=" + std::to_string(seed);
  json changes = place.changes;
  changes.merge_patch(variant.changes);
  for_each_setting(changes, "", [&](const std::string& name, const json& value) {
    run.assignments.push_back(name + "=" + value.dump());
  });
  for (const std::string& name : grid.seeded) run.assignments.push_back(name + "=" + std::to_string(seed));
  for (const std::string& assignment : run.assignments) set_value(run.recipe, assignment);
  for_each_setting(place.places, "", [&](const std::string& name, const json& value) {
    run.places.push_back(name + "=" + value.dump());
  });
  return run;
}

}  // namespace fem
