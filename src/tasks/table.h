// The tasks that a recipe can name: `task = "language"`. A new one is a file and a row: docs/adding_a_task.md.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/options_json.h"
#include "train/options.h"
#include "train/task.h"

namespace fem {

// setting: "data.length=256", with the value it has where a recipe says nothing.
using SettingVisitor = std::function<void(const std::string& setting, const char* help)>;

// A visitor of options that lists them as the settings of a section.
inline auto settings_of(const std::string& section, const SettingVisitor& visit) {
  return [section, &visit](const char* name, const auto& value, const char* help) {
    visit(setting_text(section + "." + name, value), help);
  };
}

struct TaskEntry {
  const char* name;
  const char* summary;
  // recipe: the sections [model] and [data], whose unknown or impossible values are an error. start: the model folder
  // or checkpoint whose parameters the task is given afterwards, if any, for what else belongs to them (a tokenizer).
  std::unique_ptr<Task> (*make)(const nlohmann::json& recipe, const TrainOptions& train,
                                const std::filesystem::path& start);
  // How many parameters which part of the model has, without making them.
  std::vector<std::pair<std::string, int64_t>> (*parameters)(const nlohmann::json& recipe);
  void (*settings)(const SettingVisitor& visit);  // what the recipe may say, for fem train --help
  // What a person wants to see of a finished run besides its measures; null: nothing.
  void (*show)(const std::filesystem::path& run, std::ostream& out) = nullptr;
};

const std::vector<const TaskEntry*>& all_tasks();

// A whole recipe: its task (language if it names none), [model] and [data] for that task, [train] for the trainer.
struct Recipe {
  const TaskEntry* task;
  nlohmann::json sections;
  TrainOptions train;

  std::unique_ptr<Task> make(const std::filesystem::path& start = {}) const {
    return task->make(sections, train, start);
  }
};

// Throws one sentence for an unknown task, section or value of [train].
Recipe recipe_from_json(const nlohmann::json& json);

}  // namespace fem
