#include "tasks/table.h"

#include <nlohmann/json.hpp>

#include "io/options_json.h"
#include "tasks/argmax/task.h"
#include "tasks/forecast/task.h"
#include "tasks/images/task.h"
#include "tasks/language.h"
#include "tasks/mad/task.h"

namespace fem {

using nlohmann::json;

const std::vector<const TaskEntry*>& all_tasks() {
  static const std::vector<const TaskEntry*> tasks{&language_entry(), &argmax_entry(), &mad_entry(), &forecast_entry(),
                                                   &images_entry()};
  return tasks;
}

Recipe recipe_from_json(const json& in) {
  OptionsReader sections("recipe", in);
  for (const char* name : {"task", "model", "data", "train"}) sections.skip(name);
  sections.finish();
  const json name = in.value("task", json(language_entry().name));
  const TaskEntry* found = nullptr;
  std::string known;
  for (const TaskEntry* task : all_tasks()) {
    if (name == task->name) found = task;
    known += (known.empty() ? "\"" : ", \"") + std::string(task->name) + "\"";
  }
  FEM_CHECK(found, "recipe: expected task to be one of ", known, ", got ", name.dump());
  Recipe recipe{found, in, train_options_from_json(in.value("train", json::object()))};
  recipe.sections.erase("train");
  return recipe;
}

}  // namespace fem
