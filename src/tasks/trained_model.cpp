#include "tasks/trained_model.h"

#include <ATen/ATen.h>

#include "fem/io/model_folder.h"
#include "train/run_folder.h"
#include "util/check.h"

namespace fem {

namespace fs = std::filesystem;
using nlohmann::json;

TrainedFolder trained_folder(const fs::path& place, const std::string& task) {
  std::error_code none;
  const fs::path best = place / "best";
  TrainedFolder found{fs::is_directory(best, none) ? fs::canonical(best) : model_folder(place), {}};
  const fs::path checkpoints = fs::weakly_canonical(found.folder, none).parent_path();
  if (checkpoints.filename() != "checkpoints") return found;
  const json recipe = recipe_of_run(checkpoints.parent_path());
  if (recipe.is_object() && recipe.value("task", json()) == task) found.recipe = recipe;
  return found;
}

void take_parameters(torch::nn::Module& model, const json& options, const torch::nn::Module& saved,
                     const json& saved_options, const std::string& task, const fs::path& folder) {
  for (const auto& [name, value] : options.items())
    FEM_CHECK(name == "dropout" || name == "mixer" || saved_options.value(name, json()) == value, task, ": model.",
              name, " is ", saved_options.value(name, json()).dump(), " in ", folder.string(), ", but ", value.dump(),
              " here; take the data and the recipe of that model");
  const at::NoGradGuard no_grad;
  const auto stored = saved.named_parameters();
  for (auto& own : model.named_parameters()) {
    FEM_CHECK(stored.contains(own.key()) && stored[own.key()].sizes() == own->sizes(), task, ": ", folder.string(),
              " is of another mixer than the recipe; take the recipe of that model");
    own->copy_(stored[own.key()]);
  }
}

}  // namespace fem
