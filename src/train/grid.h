// A grid of runs, as a TOML file says it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fem {

// Part of a recipe under a name: what one value of an axis, or one choice, changes.
struct Variant {
  std::string label;
  nlohmann::json changes = nlohmann::json::object();
};

// One place of the grid: a value of every axis.
struct Cell {
  std::vector<std::string> labels;  // in the order of Grid::axes
  std::string recipe_name;
  std::filesystem::path recipe_file;
  nlohmann::json recipe;  // as the file has it
  nlohmann::json changes = nlohmann::json::object();
  nlohmann::json places = nlohmann::json::object();  // changes that say where files lie: not part of a run's record
  std::vector<Variant> choices = {};                 // its own, in the place of the grid's; none: the grid's
  std::optional<size_t> chosen_at = {};  // the cell whose choice is taken over, of the same choices; none: its own
};

struct Grid {
  std::vector<std::string> axes;
  std::vector<Cell> cells;
  std::vector<int64_t> seeds;           // that are reported
  std::vector<Variant> choices;         // the best of these is reported; one without changes if nothing is chosen
  std::vector<int64_t> choosing_seeds;  // by which it is chosen; none if nothing is
  std::vector<std::string> seeded{"train.seed"};  // the settings that a run's seed is given to
};

const std::vector<Variant>& choices_at(const Grid& grid, size_t cell);
// The cell that runs the choices for this one.
size_t chooser_of(const Grid& grid, size_t cell);
// None if it has nothing to choose from.
const std::vector<int64_t>& choosing_seeds_at(const Grid& grid, size_t cell);
// How many runs a cell has, to choose by and to report.
int64_t runs_at(const Grid& grid, size_t cell);

// One run: a recipe and the values that `fem train --set` changes in it.
struct GridRun {
  std::string name;  // also that of its folder
  size_t cell = 0, choice = 0;
  int64_t seed = 0;
  std::filesystem::path recipe_file;
  std::vector<std::string> assignments;  // "train.seed=1"
  std::vector<std::string> places;       // the same, of where files lie
  nlohmann::json recipe;                 // with the changes made but for places

  int64_t steps() const;
};

// The file names `recipe`, reported `seeds`, [axes.NAME] with a part of a recipe for every value (in which `recipe` may
// name another recipe, and an empty table empties one), [set] with what all runs change, perhaps `seeded`, the settings
// that a seed is given to, and [choose] with `seeds` and [choose.settings], lists of values. Paths are relative to the
// file. Throws one sentence for what cannot be.
Grid load_grid(const std::filesystem::path& path);

// Every combination of values of a table of lists, such as {"train": {"learning_rate": [1e-3, 3e-3]}}.
std::vector<Variant> choices_of(const nlohmann::json& settings);

// Throws a sentence, which begins with whose, if a seed comes twice or is one to choose by and one to report, if two
// runs have one name, or if a cell takes over the choice of one that has other choices or does not choose.
void check(const Grid& grid, const std::string& whose);

GridRun run_of(const Grid& grid, size_t cell, size_t choice, int64_t seed);

}  // namespace fem
