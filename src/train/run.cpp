#include "train/run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>

#include "fem/io/model_folder.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/read_file.h"
#include "io/versions.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/run_folder.h"
#include "train/step_memory.h"
#include "train/trainer.h"
#include "util/check.h"
#include "util/hash.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

Json json_of(const NamedValues& values) {
  Json out = Json::object();
  for (const auto& [name, value] : values) out[name] = value;
  return out;
}

void write_json(const fs::path& path, const Json& content) {
  write_atomically(path, [&](std::ostream& file) { file << content.dump(2) << "\n"; });
}

void describe(const Trainer& trainer, const Task& task, const TrainOptions& options, int64_t ranks, std::ostream& log) {
  const auto [units, per_row] = task.units_of_a_row();
  log << grouped(trainer.parameter_count()) << " parameters, " << task.description() << ", "
      << grouped(options.batch * per_row) << " " << units << " a step, " << ranks
      << (ranks == 1 ? " process, " : " processes, ") << at::get_num_threads() << " threads\n"
      << std::flush;
}

// Processes that train together must train the same: what differs would be averaged silently.
void check_same_everywhere(const Trainer& trainer, ProcessGroup& group) {
  nlohmann::json identity = trainer.identity();
  identity["train"].erase("init_from");  // a path, as the names of files are, may be another on another machine
  if (identity.contains("files"))
    for (auto& [kind, files] : identity["files"].items())
      for (auto& file : files) file.erase("name");
  const std::string own = identity.dump();
  const at::Tensor size = at::tensor({static_cast<int64_t>(own.size())}, at::kLong);
  group.broadcast(size);
  at::Tensor text = at::zeros({size.item<int64_t>()}, at::kByte);
  if (group.rank() == 0) std::memcpy(text.mutable_data_ptr(), own.data(), own.size());
  group.broadcast(text);
  const std::string first(static_cast<const char*>(text.const_data_ptr()), text.numel());
  FEM_CHECK(first == own, "train: rank ", group.rank(),
            " has another recipe or other data than rank 0; start every process with the same command and files");
}

// One training run from where it stands to its end or to a signal.
class Run {
 public:
  Run(Trainer& trainer, const Task& task, const TrainOptions& options, const RunOptions& run,
      const InterruptGuard& guard)
      : trainer_(trainer),
        task_(task),
        options_(options),
        run_(run),
        guard_(guard),
        goal_(task.goal()),
        checkpoints_(run.out, options.keep_checkpoints),
        seconds_before_(trainer.seconds),
        saved_(trainer.steps_done() > 0 ? trainer.steps_done() : kNothing) {}

  bool at_end() const {
    const bool out_of_patience = options_.patience > 0 && trainer_.best.since >= options_.patience;
    const bool good_enough = options_.enough && trainer_.best.reaches(goal_, *options_.enough);
    return trainer_.steps_done() >= options_.steps || out_of_patience || good_enough;
  }

  TrainResult go(bool writes) {
    if (writes) {
      metrics_ = std::make_unique<Metrics>(run_.out, trainer_.steps_done());
      progress_ = std::make_unique<Progress>(run_.label, options_.steps, "step", trainer_.steps_done());
    }
    TrainResult result{.parameters = trainer_.parameter_count()};
    try {
      advance();
      measure(result);
      result.finished = true;
    } catch (const Interrupted&) {  // between two steps: an unfinished step or validation left nothing
      if (trainer_.steps_done() != saved_) save();
    }
    result.step = trainer_.steps_done();
    result.seconds = seconds_before_ + seconds_since(start_);
    return result;
  }

 private:
  static constexpr int64_t kNothing = -1;

  void advance() {
    const int64_t first = trainer_.steps_done();
    tell_what_a_signal_costs();
    // Before the first step if so wanted, or where a signal came before the validation.
    const bool better = wants_validation() && trainer_.best.validated < first && validate();
    if ((better && options_.keep_best) || (at_end() && trainer_.steps_done() != saved_)) save();
    while (!at_end()) {
      const Trainer::Step step = trainer_.step();
      tell_what_a_signal_costs();
      report(step, first);
      const bool improved = wants_validation() && validate();
      if (due(trainer_.steps_done(), options_.checkpoint_every) || at_end() || (improved && options_.keep_best)) save();
    }
  }

  // After the step that was done last. The end has a validation of its own; the best is chosen by like measures.
  bool wants_validation() const {
    const int64_t done = trainer_.steps_done();
    if (done == 0) return options_.validate_first;
    return done == options_.steps ? options_.keep_best : due(done, options_.validate_every);
  }

  void report(const Trainer::Step& step, int64_t first) {
    if (!metrics_) return;
    const int64_t done = trainer_.steps_done();
    const auto [units, per_row] = task_.units_of_a_row();
    const double seconds = seconds_since(start_) - validating_;
    const double rate = static_cast<double>((done - first) * options_.batch * per_row) / seconds;
    progress_->update(done, "loss " + fixed(step.loss, 3) + "  " + grouped(static_cast<int64_t>(rate)) + " " + units +
                                "/s" + validation_note_);
    if (due(done, options_.log_every) || done == options_.steps || done == 1)
      metrics_->record("train", done,
                       {{"loss", step.loss},
                        {"gradient_norm", step.gradient_norm},
                        {"learning_rate", step.learning_rate},
                        {units, done * options_.batch * per_row},
                        {"seconds", seconds},
                        {units + "_per_second", rate}});
  }

  // Between two steps; true if it is the best so far.
  bool validate() {
    const Clock::time_point before = Clock::now();
    const NamedValues measures = measured(/*whole=*/false);
    record("validation", trainer_.steps_done(), measures);
    const bool improved = trainer_.best.observe(goal_, measures, trainer_.steps_done());
    const double seconds = seconds_since(before);
    validating_ += seconds;
    if (progress_) progress_->leave_out(seconds);
    return improved;
  }

  // At the end, when there may be much to read, it has a progress line of its own.
  NamedValues measured(bool whole) {
    std::unique_ptr<Progress> reading;
    return trainer_.validate(whole, [&](int64_t done, int64_t all) {
      if (!whole || !metrics_) return;
      if (!reading) reading = std::make_unique<Progress>("validation", all, task_.units_of_a_row().first);
      reading->update(done);
    });
  }

  void record(const std::string& kind, int64_t step, const NamedValues& measures) {
    validation_note_ = "  validation " + goal_.measure + " " + fixed(value_of(measures, goal_.measure), 3);
    if (metrics_) metrics_->record(kind, step, json_of(measures));
    if (run_.on_validation && kind == "validation") run_.on_validation(step, measures);
  }

  void measure(TrainResult& result) {
    progress_.reset();
    const int64_t last = trainer_.steps_done(), best = trainer_.best.step;
    const bool another = options_.keep_best && best >= 0 && best != last;
    if (another) trainer_.load_model(metrics_ ? checkpoints_.at(best) : fs::path());
    result.measured_step = another ? best : last;
    result.measures = measured(/*whole=*/true);
    record(another ? "best" : "validation", result.measured_step, result.measures);
  }

  void save() {
    trainer_.seconds = seconds_before_ + seconds_since(start_);
    const auto best = options_.keep_best && trainer_.best.step >= 0 ? std::optional(trainer_.best.step) : std::nullopt;
    const auto fill = [this](const fs::path& folder) { trainer_.save(folder); };
    if (metrics_) checkpoints_.write(trainer_.steps_done(), fill, best);
    saved_ = trainer_.steps_done();
    tell_what_a_signal_costs();
  }

  void tell_what_a_signal_costs() const {
    if (!metrics_) return;
    const int64_t done = trainer_.steps_done();
    const int64_t first = std::max<int64_t>(saved_, 0) + 1;
    std::string lost = "the step in progress is lost";
    if (done == first) lost = "step " + grouped(done) + " is lost";
    if (done > first) lost = "steps " + grouped(first) + " to " + grouped(done) + " are lost";
    const bool any = saved_ != kNothing;
    guard_.costs(lost + (any ? "; the last checkpoint is step " + grouped(saved_) : "; there is no checkpoint yet"));
  }

  Trainer& trainer_;
  const Task& task_;
  const TrainOptions& options_;
  const RunOptions& run_;
  const InterruptGuard& guard_;
  const Goal goal_;
  Checkpoints checkpoints_;
  const Clock::time_point start_ = Clock::now();
  const double seconds_before_;
  double validating_ = 0;
  int64_t saved_;                     // the last checkpoint's step, or kNothing
  std::unique_ptr<Metrics> metrics_;  // both of rank 0 alone
  std::unique_ptr<Progress> progress_;
  std::string validation_note_;
};

// What a sweep and other programs read of a finished run.
void write_result(const fs::path& out, const TrainResult& result, const Goal& goal) {
  write_json(result_path(out), {{"step", result.step},
                                {"measured_step", result.measured_step},
                                {"parameters", result.parameters},
                                {"seconds", result.seconds},
                                {"goal", {{"measure", goal.measure}, {"larger_is_better", goal.larger_is_better}}},
                                {"measures", json_of(result.measures)},
                                {"versions", versions_json()}});
}

// What write_result wrote after that step; nothing if it did not come to that.
std::optional<TrainResult> read_result(const fs::path& out, int64_t step) {
  const std::string whose = "train: " + result_path(out).string();
  try {
    const Json in = parse_json<Json>(read_file(result_path(out), "train"), whose);  // measures in their order
    const nlohmann::json fields = in;
    TrainResult result{.finished = true,
                       .step = integer_in(fields, "step", whose),
                       .parameters = integer_in(fields, "parameters", whose),
                       .seconds = number_in(fields, "seconds", whose),
                       .measured_step = integer_in(fields, "measured_step", whose)};
    const Json measures = in.value("measures", Json::object());
    for (const auto& [name, value] : measures.items())
      result.measures.emplace_back(name, value.is_number() ? value.get<double>() : std::nan(""));
    return result.step == step ? std::optional(result) : std::nullopt;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// The result of a run that is at its end, on all ranks; nothing if it still has to be measured.
std::optional<TrainResult> known_result(const fs::path& out, const Trainer& trainer, ProcessGroup& group) {
  std::optional<TrainResult> known;
  if (group.rank() == 0) known = read_result(out, trainer.steps_done());
  const at::Tensor is_known = at::tensor({known ? 1 : 0}, at::kLong);
  group.broadcast(is_known);
  if (is_known.item<int64_t>() && !known) known = {.finished = true, .step = trainer.steps_done()};
  return known;
}

// Where the run goes on, nothing if it begins.
std::optional<CheckpointFolder> start_of(const RunOptions& run) {
  const Checkpoints checkpoints(run.out, 1);
  const auto newest = checkpoints.newest();
  FEM_CHECK(run.resume || !newest, "train: ", run.out.string(), " already holds a run (step ", newest->step,
            "); add --resume to go on with it, or choose another --out");
  FEM_CHECK(newest || !fs::exists(result_path(run.out)), "train: ", run.out.string(),
            " holds a finished run whose checkpoints are gone; choose another --out");
  return run.resume ? checkpoints.start(run.resume_from) : std::nullopt;
}

// Rank 0 decides for all, whatever they see of the folder and whatever their processors have: whether the run goes on,
// and what precision "auto" is. A run keeps the precision it began with.
bool decide_together(const std::optional<CheckpointFolder>& start, TrainOptions& options, ProcessGroup& group) {
  Precision precision = options.precision;
  if (group.rank() == 0 && precision == Precision::kAuto && start) precision = saved_options(start->folder).precision;
  const at::Tensor decided = at::tensor({start ? 1 : 0, static_cast<int>(resolved(precision))}, at::kLong);
  group.broadcast(decided);
  if (options.precision == Precision::kAuto) options.precision = static_cast<Precision>(decided[1].item<int64_t>());
  return decided[0].item<int64_t>() == 1;
}

void tell_growth(const TrainOptions& before, const TrainOptions& now, std::ostream& log) {
  if (now.steps == before.steps) return;
  log << "train.steps was " << grouped(before.steps) << " and is now " << grouped(now.steps)
      << ": from here on the learning rate is that of the longer run\n";
}

void begin(const RunOptions& run, const Trainer& trainer, const Task& task, const TrainOptions& options, int64_t ranks,
           std::ostream& log) {
  fs::remove(result_path(run.out));
  Json config = task.recipe();
  config["train"] = to_json(options);
  write_json(config_path(run.out), config);
  describe(trainer, task, options, ranks, log);
  if (trainer.steps_done() > 0) log << "Goes on after step " << grouped(trainer.steps_done()) << "\n" << std::flush;
}

}  // namespace

TrainResult train(const MakeTask& make_task, const TrainOptions& given, const RunOptions& run, std::ostream& log) {
  const ParallelEnvironment environment = parallel_environment();
  const bool writes = environment.rank == 0;
  std::optional<RunFolder> folder;
  if (writes) folder.emplace(run.out);
  const auto start = writes ? start_of(run) : run.resume ? Checkpoints(run.out, 1).newest() : std::nullopt;
  const fs::path init = given.init_from.empty() ? fs::path() : model_folder(given.init_from);

  const InterruptGuard guard;
  const std::unique_ptr<Task> task = make_task(start ? start->folder : init);
  const auto group = ProcessGroup::connect(environment, std::chrono::seconds(given.timeout_seconds));
  TrainOptions options = given;
  const bool resumes = decide_together(start, options, *group);
  Trainer trainer(*task, options, group);
  check_same_everywhere(trainer, *group);
  if (resumes)
    trainer.load(start ? start->folder : fs::path());
  else if (!init.empty())
    trainer.load_model(init);
  Run training(trainer, *task, options, run, guard);
  if (resumes && training.at_end())
    if (const auto known = known_result(run.out, trainer, *group)) {
      if (writes) log << "The run is finished, after step " << grouped(known->step) << "\n" << std::flush;
      return *known;
    }
  if (writes) {
    if (run.resume_from) Checkpoints(run.out, 1).set_aside_after(*run.resume_from);
    if (resumes) tell_growth(saved_options(start->folder), options, log);
    begin(run, trainer, *task, options, group->size(), log);
  }
  TrainResult result;
  std::ostream silent(nullptr);
  with_memory_remedy(options, trainer.micro_batch(), [&] {
    check_step_fits(trainer, options, writes ? log : silent);
    result = training.go(writes);
  });
  if (writes && result.finished) write_result(run.out, result, task->goal());
  return result;
}

}  // namespace fem
