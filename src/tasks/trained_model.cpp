#include "tasks/trained_model.h"

#include <ATen/ATen.h>

#include <set>

#include "fem/io/model_folder.h"
#include "train/run_folder.h"
#include "util/check.h"

namespace fem {

namespace fs = std::filesystem;
using nlohmann::json;

TrainedFolder trained_folder(const fs::path& place, const std::string& task) {
  std::error_code none;
  TrainedFolder found{best_model_folder(place), {}};
  const fs::path checkpoints = fs::weakly_canonical(found.folder, none).parent_path();
  if (checkpoints.filename() != "checkpoints") return found;
  const json recipe = recipe_of_run(checkpoints.parent_path());
  if (recipe.is_object() && recipe.value("task", json()) == task) found.recipe = recipe;
  return found;
}

void take_parameters(torch::nn::Module& model, const json& options, const torch::nn::Module& saved,
                     const json& saved_options, const std::string& task, const fs::path& folder) {
  const json before = saved_options.flatten(), now = options.flatten();
  std::set<std::string> names;
  for (const json& all : {before, now})
    for (const auto& [name, value] : all.items())
      if (!name.ends_with("/dropout")) names.insert(name);  // what is dropped in training is no part of the model
  for (const std::string& name : names) {
    const json was = before.value(name, json()), is = now.value(name, json());
    FEM_CHECK(was == is, task, ": model", name, " is ", was.dump(), " in ", folder.string(), ", but ", is.dump(),
              " here; take the data and the recipe of that model");
  }
  const at::NoGradGuard no_grad;
  const auto stored = saved.named_parameters();
  for (auto& own : model.named_parameters()) own->copy_(stored[own.key()]);
}

}  // namespace fem
