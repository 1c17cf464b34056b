#include "experiments/mad/plan.h"

#include <algorithm>
#include <map>

#include "experiments/grid_cost.h"
#include "io/recipe.h"
#include "tasks/mad/task.h"
#include "util/check.h"
#include "util/nearest.h"
#include "util/table.h"

namespace fem {
namespace {

using nlohmann::json;

// The recipes in configs/mad, and what stands over their columns.
const std::vector<std::pair<std::string, const char*>> kHeadings{
    {"in-context-recall", "recall"}, {"noisy-recall", "noisy"},   {"fuzzy-recall", "fuzzy"},
    {"memorization", "memory"},      {"compression", "compress"}, {"selective-copying", "copy"}};

std::vector<std::string> all_mad_tasks() {
  std::vector<std::string> tasks;
  for (const auto& [task, heading] : kHeadings) tasks.push_back(task);
  return tasks;
}

// The rows of Table 1 and, beside the full mixers, those of dialect paper.
std::vector<MixerRow> table_1() {
  std::vector<MixerRow> rows{{"attention", ""}};
  for (const char* prior : {"softmax", "gla"})
    for (const char* letters : {"CLTG", "", "C", "CL", "CLT", "L", "LT", "LTG"}) rows.push_back({prior, letters});
  for (const char* prior : {"softmax", "gla"}) rows.push_back({prior, "CLTG", "paper"});
  for (const char* prior : {"mamba", "rnn_softmax"})
    for (const char* letters : {"", "CLTG"}) rows.push_back({prior, letters});
  rows.push_back({"mamba_unnormalised", "CLTG"});
  rows.push_back({"linear", ""});
  for (const std::string& name : baseline_mixers()) rows.push_back({name, ""});
  return rows;
}

// A task in one of its settings.
struct Setting {
  std::string label;
  json changes;
};

// The published settings of a task: its baseline, and from there one value changed at a time.
std::vector<Setting> published_settings(const std::string& task) {
  struct Values {
    const char *letter, *field;
    std::vector<double> values;
  };
  std::vector<Values> axes;
  const std::vector<double> examples{6400, 3200, 1600, 800};
  if (task == "memorization")
    axes = {{"V", "vocab_size", {512, 1024, 2048, 4096, 8192}}};
  else if (task == "compression")
    axes = {{"V", "vocab_size", {32, 64, 128}}, {"T", "length", {64, 128, 256}}, {"N", "train_examples", examples}};
  else if (task == "selective-copying")
    axes = {{"V", "vocab_size", {32, 64, 128}},
            {"T", "length", {512, 1024}},
            {"N", "train_examples", examples},
            {"n", "copied", {32, 64, 96}}};
  else if (task == "noisy-recall")
    axes = {{"V", "vocab_size", {48, 80, 144}},
            {"T", "length", {256, 512, 1024}},
            {"N", "train_examples", examples},
            {"noise", "noise", {0.4, 0.6, 0.8}}};
  else
    axes = {{"V", "vocab_size", {32, 64, 128}}, {"T", "length", {256, 512, 1024}}, {"N", "train_examples", examples}};

  const json baseline{{"vocab_size", 0}, {"length", 0}, {"train_examples", 0}, {"copied", 16}};
  std::vector<Setting> settings{{task, {{"data", baseline}}}};
  for (const Values& axis : axes) {
    for (const double value : axis.values) {
      json data = baseline;
      const bool whole = value >= 1;
      data[axis.field] = whole ? json(static_cast<int64_t>(value)) : json(value);
      settings.push_back({task + " " + axis.letter + "=" + data[axis.field].dump(), {{"data", data}}});
    }
  }
  return settings;
}

// mad-lab's training: 200 passes over the examples, a last batch that is not full counted as one.
json published_training(const MadDataOptions& data) {
  constexpr int64_t kBatch = 128, kPasses = 200;
  const int64_t steps = kPasses * ((data.train_examples + kBatch - 1) / kBatch);
  return {{"batch", kBatch},
          {"steps", steps},
          {"warmup_steps", 0},
          {"final_learning_rate", 1.0},
          {"clip", 0.0},
          {"beta2", 0.999},
          {"precision", "auto"},
          {"validate_every", kPasses},
          {"checkpoint_every", 1000}};
}

std::vector<Setting> settings_of(const MadPlan& plan, const std::string& task, const json& recipe) {
  if (plan.preset == "mini") return {{task, {{"train", {{"enough", 0.999}}}}}};
  if (plan.preset == "smoke")
    return {{task,
             {{"data", {{"train_examples", 64}, {"test_examples", 128}}},
              {"train", {{"steps", 4}, {"batch", 8}, {"warmup_steps", 1}, {"validate_every", 2}}}}}};
  std::vector<Setting> settings = published_settings(task);
  for (Setting& setting : settings) {
    setting.changes["model"] = {{"n_embd", 128}, {"n_head", 16}, {"n_layer", 2}, {"mlp_width", 352}};
    json own = recipe;
    own.merge_patch(setting.changes);
    setting.changes["train"] = published_training(mad_options_from_json(own).data);
    setting.changes["train"]["enough"] = 0.999;
  }
  return settings;
}

}  // namespace

MadPlan mad_preset(const std::string& name) {
  if (name == "smoke")
    return {.preset = name,
            .mixers = {{"attention", ""}, {"softmax", "CLTG"}, {"gla", "CLTG"}},
            .tasks = {"in-context-recall", "compression"},
            .seeds = {1, 2},
            .learning_rates = {1e-3, 1e-2}};
  if (name == "mini")
    return {.preset = name,
            .mixers = table_1(),
            .tasks = all_mad_tasks(),
            .seeds = {1, 2, 3},
            .learning_rates = {1e-3, 3e-3, 1e-2}};
  FEM_CHECK(name == "paper", "mad: expected --preset smoke, mini or paper, got '", name, "'");
  return {.preset = name,
          .mixers = table_1(),
          .tasks = all_mad_tasks(),
          .seeds = {1, 2, 3},
          .learning_rates = {1e-4, 5e-4, 1e-3}};
}

Grid grid_of(const MadPlan& plan) {
  const std::vector<std::string> known = all_mad_tasks();
  for (const std::string& task : plan.tasks)
    FEM_CHECK(std::count(known.begin(), known.end(), task) > 0, "mad: expected tasks such as ", known[0], ", got '",
              task, "'", did_you_mean(task, known));
  FEM_CHECK(!plan.mixers.empty() && !plan.tasks.empty() && !plan.seeds.empty() && !plan.learning_rates.empty(),
            "mad: expected at least one of --mixers, --tasks, --seeds and --lr each");
  Grid grid{.axes = {"mixer", "task"}, .seeds = plan.seeds, .seeded = {"train.seed", "data.seed"}};
  json settings{{"train", {{"learning_rate", plan.learning_rates}}}};
  if (plan.preset == "paper") settings["train"]["weight_decay"] = {0.0, 0.1};
  grid.choices = choices_of(settings);
  if (grid.choices.size() > 1) grid.choosing_seeds = {plan.choosing_seed};
  for (const MixerRow& mixer : plan.mixers) {
    for (const std::string& task : plan.tasks) {
      const std::string name = "mad/" + task;
      const auto file = find_recipe(name);
      const json recipe = load_recipe(file);
      for (const Setting& setting : settings_of(plan, task, recipe)) {
        json own = recipe;
        own.merge_patch(setting.changes);
        json changes = setting.changes;
        changes.merge_patch(changes_of(mixer, own));
        grid.cells.push_back({{mixer.label(), setting.label}, name, file, recipe, changes});
      }
    }
  }
  check(grid, "mad");
  return grid;
}

std::string cost_of(const Grid& grid) {
  return cost_of(grid, [](const json& recipe) { return mad_options_from_json(recipe).data.length; });
}

std::string mad_table(const Grid& grid, const std::vector<SweepRow>& rows) {
  std::vector<std::string> tasks, mixers;
  const auto remember = [](std::vector<std::string>& list, const std::string& name) {
    if (std::count(list.begin(), list.end(), name) == 0) list.push_back(name);
  };
  const auto task_of = [](const std::string& label) { return label.substr(0, label.find(' ')); };
  // Of each mixer and task: the mean of every setting that has a result, and how many have none.
  std::map<std::pair<std::string, std::string>, std::pair<std::vector<double>, size_t>> found;
  for (const SweepRow& row : rows) {
    const std::string mixer = row.labels[0], task = task_of(row.labels[1]);
    remember(mixers, mixer);
    remember(tasks, task);
    auto& [means, missing] = found[{mixer, task}];
    const auto accuracy = std::find_if(row.measures.begin(), row.measures.end(),
                                       [](const auto& measure) { return measure.first == "accuracy"; });
    const bool whole = accuracy != row.measures.end() && accuracy->second.count == grid.seeds.size();
    whole ? means.push_back(100 * accuracy->second.mean) : void(++missing);
  }
  std::vector<std::string> header{"mixer"};
  for (const auto& [task, heading] : kHeadings)
    if (std::count(tasks.begin(), tasks.end(), task) > 0) header.emplace_back(heading);
  header.emplace_back("average");
  Table table(header);
  for (const std::string& mixer : mixers) {
    std::vector<std::string> line{mixer};
    std::vector<double> all;
    for (const auto& [task, heading] : kHeadings) {
      if (std::count(tasks.begin(), tasks.end(), task) == 0) continue;
      const auto& [means, missing] = found[{mixer, task}];
      if (missing == 0) all.push_back(summarize(means).mean);
      line.push_back(missing == 0 ? fixed(all.back(), 1) : "-");
    }
    line.push_back(all.size() == tasks.size() ? fixed(summarize(all).mean, 1) : "-");
    table.add(line);
  }
  return table.str();
}

}  // namespace fem
