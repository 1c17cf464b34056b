#include "train/sweep.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <ostream>
#include <set>
#include <thread>

#include "io/checkpoint_folders.h"
#include "io/folder_lock.h"
#include "io/json.h"
#include "train/children.h"
#include "train/metrics.h"
#include "train/run_folder.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr auto kPause = std::chrono::milliseconds(100);

std::string last_line(const fs::path& log) {
  std::string last;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last.starts_with("fem: ") ? last.substr(5) : last;
}

// Why a run that was begun in a folder cannot go on as one of this grid: its learning rates were those of another
// length.
std::optional<std::string> begun_otherwise(const fs::path& folder, int64_t steps) {
  const nlohmann::json recipe = recipe_of_run(folder);
  if (checkpoints_of(folder).empty() || recipe.is_null() || recipe["train"].value("steps", steps) == steps) return {};
  return "it was begun with train.steps = " + recipe["train"]["steps"].dump() + "; remove " + folder.string();
}

// The settings of a run that its recipe left to the program, whose defaults may be others one day.
Json defaults_in(const Json& config, const nlohmann::json& recipe) {
  Json defaults = Json::object();
  for (const auto& [name, value] : config.items()) {
    if (!recipe.contains(name))
      defaults[name] = value;
    else if (Json inner; value.is_object() && recipe[name].is_object())
      if (inner = defaults_in(value, recipe[name]); !inner.empty()) defaults[name] = inner;
  }
  return defaults;
}

class Sweep {
 public:
  Sweep(const Grid& grid, const SweepOptions& options, std::ostream& log)
      : grid_(grid), options_(options), log_(log), results_(sweep_results_path(options.out)) {
    for (size_t cell = 0; cell < grid.cells.size(); ++cell) {
      if (chooser_of(grid, cell) == cell)
        for (const int64_t seed : choosing_seeds_at(grid, cell))
          for (size_t choice = 0; choice < choices_at(grid, cell).size(); ++choice)
            add(run_of(grid, cell, choice, seed));
      // Until the choice is made any may stand for it: what counts is how long they are.
      for (const int64_t seed : grid.seeds) steps_to_come_ += run_of(grid, cell, 0, seed).steps();
      unchosen_.insert(cell);
    }
    choose();
  }

  SweepOutcome go() {
    const InterruptGuard guard;
    guard.costs("runs in progress go back to their last checkpoints");
    tell_start();
    {
      Progress progress("sweep", total_steps(), "step", steps_done());
      while (!over()) {
        while (!interrupted() && children_.running() < static_cast<size_t>(options_.jobs) && start_next()) continue;
        std::this_thread::sleep_for(kPause);
        for (const Children::End& end : children_.ended()) finish(runs_[end.key], end.failure);
        for (const size_t key : children_.keys()) runs_[key].reached = last_step(folder_of(runs_[key].run));
        progress.update(steps_done(), note());
        if (interrupted() && !terminated_) {
          children_.terminate();
          terminated_ = true;
        }
      }
    }
    SweepOutcome outcome{.runs = all_runs(), .interrupted = interrupted()};
    for (const Member& member : runs_) {
      outcome.finished += member.state == State::kFinished;
      outcome.failed += member.state == State::kFailed;
    }
    return outcome;
  }

 private:
  enum class State { kWaiting, kRunning, kFinished, kFailed };
  struct Member {
    GridRun run;
    State state = State::kWaiting;
    int64_t steps = 0;    // that it has to do
    int64_t reached = 0;  // of these, as far as is known
  };

  fs::path folder_of(const GridRun& run) const { return options_.out / "runs" / run.name; }

  void add(GridRun run) {
    const State state = results_.finished(run) ? State::kFinished : State::kWaiting;
    const int64_t steps = run.steps(), reached = last_step(folder_of(run));
    runs_.push_back({std::move(run), state, steps, reached});
  }

  bool is_over(const Member& member) const {
    return member.state == State::kFinished || member.state == State::kFailed;
  }

  bool over() const {
    if (interrupted()) return children_.running() == 0;
    for (const Member& member : runs_)
      if (!is_over(member)) return false;
    return unchosen_.empty();
  }

  // Cells whose runs to choose by have all ended get their runs to report.
  bool is_chosen(size_t cell) const {
    const size_t chooser = chooser_of(grid_, cell);
    return std::all_of(runs_.begin(), runs_.end(), [&](const Member& member) {
      const bool chooses = std::count(grid_.choosing_seeds.begin(), grid_.choosing_seeds.end(), member.run.seed) > 0;
      return !chooses || member.run.cell != chooser || is_over(member);
    });
  }

  void choose() {
    for (auto cell = unchosen_.begin(); cell != unchosen_.end();) {
      if (!is_chosen(*cell)) {
        ++cell;
        continue;
      }
      const std::optional<size_t> best = chosen(grid_, results_, *cell);
      for (const int64_t seed : grid_.seeds) {
        const int64_t steps = run_of(grid_, *cell, 0, seed).steps();
        steps_to_come_ -= steps;
        best ? add(run_of(grid_, *cell, *best, seed)) : void(steps_dropped_ += steps);
      }
      if (!best) log_ << "No choice of " << name_of(*cell) << " finished; it has no row\n" << std::flush;
      cell = unchosen_.erase(cell);
    }
  }

  std::string name_of(size_t cell) const {
    std::string name;
    for (const std::string& label : grid_.cells[cell].labels) name += (name.empty() ? "" : ", ") + label;
    return name.empty() ? "the only cell" : name;
  }

  // The waiting run of the first cell: the table fills from its top.
  std::optional<size_t> next_run() const {
    std::optional<size_t> first;
    for (size_t key = 0; key < runs_.size(); ++key)
      if (runs_[key].state == State::kWaiting && (!first || runs_[key].run.cell < runs_[*first].run.cell)) first = key;
    return first;
  }

  bool start_next() {
    if (const std::optional<size_t> key = next_run()) {
      Member& member = runs_[*key];
      const fs::path folder = folder_of(member.run);
      if (const auto reason = begun_otherwise(folder, member.steps)) {
        fail(member, *reason);
        choose();
        return true;
      }
      fs::create_directories(folder);
      fs::remove(result_path(folder));
      std::vector<std::string> command = options_.program;
      command.insert(command.end(), {"train", member.run.recipe_file.string(), "--out", folder.string(), "--resume",
                                     "--plain", "--threads", "1"});
      for (const auto* settings : {&member.run.assignments, &member.run.places})
        for (const std::string& assignment : *settings) command.insert(command.end(), {"--set", assignment});
      children_.start(*key, command, folder / "log.txt");
      member.state = State::kRunning;
      return true;
    }
    return false;
  }

  void finish(Member& member, const std::optional<std::string>& failure) {
    const fs::path folder = folder_of(member.run);
    std::ifstream file(result_path(folder));
    const auto result = json_if_whole<Json>(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!failure && result && result->is_object()) {
      Json line = *result;
      line["curve"] = validations_of(folder, line.value("/goal/measure"_json_pointer, ""));
      line["defaults"] = defaults_in(recipe_of_run(folder), member.run.recipe);
      results_.add_finished(grid_, member.run, line);
      member.state = State::kFinished;
    } else if (terminated_) {
      member.state = State::kWaiting;  // it has saved what it had and goes on next time
    } else {
      fail(member, failure ? *failure + ": " + last_line(folder / "log.txt") : "stopped before its end");
    }
    choose();
  }

  void fail(Member& member, const std::string& error) {
    results_.add_failed(grid_, member.run, error);
    member.state = State::kFailed;
    log_ << "Failed: " << member.run.name << ": " << error << "\n" << std::flush;
  }

  size_t all_runs() const { return runs_.size() + unchosen_.size() * grid_.seeds.size(); }

  int64_t total_steps() const {
    int64_t total = steps_to_come_ + steps_dropped_;
    for (const Member& member : runs_) total += member.steps;
    return total;
  }

  int64_t steps_done() const {
    int64_t done = steps_dropped_;
    for (const Member& member : runs_) done += is_over(member) ? member.steps : std::min(member.reached, member.steps);
    return done;
  }

  std::string note() const {
    size_t finished = 0, failed = 0;
    for (const Member& member : runs_) {
      finished += member.state == State::kFinished;
      failed += member.state == State::kFailed;
    }
    std::string text = std::to_string(finished) + "/" + std::to_string(all_runs()) + " runs";
    if (failed > 0) text += ", " + std::to_string(failed) + " failed";
    return terminated_ ? text + ", saving" : text;
  }

  void tell_start() const {
    size_t finished = 0;
    for (const Member& member : runs_) finished += member.state == State::kFinished;
    log_ << all_runs() << " runs of " << grid_.cells.size() << (grid_.cells.size() == 1 ? " cell, " : " cells, ")
         << options_.jobs << " at a time";
    if (finished > 0) log_ << "; " << finished << " are finished already";
    log_ << "\n" << std::flush;
  }

  const Grid& grid_;
  const SweepOptions& options_;
  std::ostream& log_;
  SweepResults results_;
  std::vector<Member> runs_;   // those that are known by now
  std::set<size_t> unchosen_;  // cells whose runs to report are not known yet
  int64_t steps_to_come_ = 0;  // of these
  int64_t steps_dropped_ = 0;  // of cells in which nothing could be chosen
  Children children_;
  bool terminated_ = false;
};

}  // namespace

SweepOutcome sweep(const Grid& grid, const SweepOptions& options, std::ostream& log) {
  FEM_CHECK(options.jobs >= 1, "sweep: expected at least one run at a time, got ", options.jobs);
  fs::create_directories(options.out);
  const FolderLock only(options.out, "sweep");  // two in one folder would train into the same runs
  return Sweep(grid, options, log).go();
}

}  // namespace fem
