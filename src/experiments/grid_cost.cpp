#include "experiments/grid_cost.h"

#include <cmath>

#include "tasks/table.h"
#include "util/grouped.h"
#include "util/table.h"

namespace fem {

std::string cost_of(const Grid& grid, const std::function<int64_t(const nlohmann::json&)>& tokens_of_a_row) {
  int64_t runs = 0, steps = 0;
  double tokens = 0, operations = 0;
  for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
    nlohmann::json fields = run_of(grid, cell, 0, grid.seeds[0]).recipe;
    fields.merge_patch(grid.cells[cell].places);
    const int64_t count = runs_at(grid, cell);
    const Recipe recipe = recipe_from_json(fields);
    const double tokens_of_a_run = static_cast<double>(recipe.train.steps * recipe.train.batch) *
                                   static_cast<double>(tokens_of_a_row(recipe.sections));
    int64_t parameters = 0;
    for (const auto& [part, own] : recipe.task->parameters(recipe.sections)) parameters += own;
    runs += count;
    steps += count * recipe.train.steps;
    tokens += static_cast<double>(count) * tokens_of_a_run;
    operations += static_cast<double>(count) * tokens_of_a_run * 6 * static_cast<double>(parameters);
  }
  return grouped(runs) + " runs, at most " + grouped(steps) + " steps, " + grouped(std::llround(tokens / 1e6)) +
         " million tokens, " + fixed(operations / 1e15, 3) + " PFLOP (6 per token and parameter)";
}

}  // namespace fem
