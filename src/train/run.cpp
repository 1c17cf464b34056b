#include "train/run.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "io/atomic_file.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
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

Json json_of(const Perplexity& p) {
  return {{"loss", p.loss()}, {"perplexity", p.perplexity()}, {"bits_per_byte", p.bits_per_byte()}};
}

void describe(Trainer& trainer, const Corpus& corpus, int64_t ranks, std::ostream& log) {
  const TrainConfig& config = trainer.config();
  log << grouped(parameter_count(language_model_parameters(config.model))) << " parameters, "
      << grouped(corpus.train.size()) << " training and " << grouped(corpus.validation.size()) << " validation tokens ("
      << corpus.tokenizer->fingerprint() << "), " << grouped(trainer.tokens_of_a_step()) << " tokens a step, " << ranks
      << (ranks == 1 ? " process, " : " processes, ") << at::get_num_threads() << " threads\n"
      << std::flush;
}

// Processes that train together must train the same: what differs would be averaged silently.
void check_same_everywhere(const Trainer& trainer, const Corpus& corpus, ProcessGroup& group) {
  const nlohmann::json config = to_json(trainer.config());
  const std::string text = config["model"].dump() + config["train"].dump() + corpus.tokenizer->fingerprint() +
                           std::to_string(corpus.train.size()) + " " + std::to_string(corpus.validation.size());
  const auto own = static_cast<int64_t>(fnv1a(text));
  const at::Tensor first = at::tensor({own}, at::kLong);
  group.broadcast(first);
  FEM_CHECK(first.item<int64_t>() == own, "train: rank ", group.rank(),
            " has another recipe or another text than rank 0; start every process with the same command and files");
}

// One training run from where it stands to its end or to a signal.
class Run {
 public:
  Run(Trainer& trainer, const fs::path& out, bool writes)
      : trainer_(trainer), options_(trainer.config().train), checkpoints_(out, options_.keep_checkpoints) {
    if (!writes) return;
    metrics_ = std::make_unique<Metrics>(out, trainer.steps_done());
    progress_ = std::make_unique<Progress>("train", options_.steps, "step", trainer.steps_done());
  }

  TrainResult go() {
    const Clock::time_point start = Clock::now();
    const int64_t first = trainer_.steps_done();
    TrainResult result;
    double validating = 0;
    bool stop = false;
    while (trainer_.steps_done() < options_.steps && !stop) {
      const Trainer::Step step = trainer_.step();
      stop = step.interrupted;
      const int64_t done = trainer_.steps_done();
      const double seconds = seconds_since(start) - validating;
      result.tokens_per_second = static_cast<double>((done - first) * trainer_.tokens_of_a_step()) / seconds;
      report(step, seconds, result.tokens_per_second);
      const bool last = done == options_.steps;
      if (due(done, options_.validate_every) && !last && !stop) {
        const Clock::time_point before = Clock::now();
        validate(options_.validation_tokens);
        validating += seconds_since(before);
      }
      if (due(done, options_.checkpoint_every) || last || stop) save();
    }
    result.step = trainer_.steps_done();
    result.finished = result.step == options_.steps;
    if (result.finished) result.validation = validate(0);
    return result;
  }

 private:
  void report(const Trainer::Step& step, double seconds, double tokens_per_second) {
    const int64_t done = trainer_.steps_done();
    if (!metrics_) return;
    progress_->update(done, "loss " + fixed(step.loss, 3) + "  " + grouped(static_cast<int64_t>(tokens_per_second)) +
                                " tokens/s" + validation_note_);
    if (due(done, options_.log_every) || done == options_.steps || done == 1)
      metrics_->record("train", done,
                       {{"loss", step.loss},
                        {"gradient_norm", step.gradient_norm},
                        {"learning_rate", step.learning_rate},
                        {"tokens", done * trainer_.tokens_of_a_step()},
                        {"seconds", seconds},
                        {"tokens_per_second", tokens_per_second}});
  }

  Perplexity validate(int64_t max_tokens) {
    const Perplexity measured = trainer_.validate(max_tokens);
    validation_note_ = "  validation " + fixed(measured.loss(), 3);
    if (metrics_) metrics_->record("validation", trainer_.steps_done(), json_of(measured));
    return measured;
  }

  void save() {
    if (metrics_) checkpoints_.write(trainer_.steps_done(), [this](const fs::path& folder) { trainer_.save(folder); });
  }

  Trainer& trainer_;
  const TrainOptions& options_;
  Checkpoints checkpoints_;
  std::unique_ptr<Metrics> metrics_;  // both of rank 0 alone
  std::unique_ptr<Progress> progress_;
  std::string validation_note_;
};

}  // namespace

TrainResult train(const TrainConfig& config, const fs::path& out, bool resume, std::ostream& log) {
  const ParallelEnvironment environment = parallel_environment();
  const bool writes = environment.rank == 0;
  const auto newest = Checkpoints(out, config.train.keep_checkpoints).newest();
  FEM_CHECK(resume || !newest || !writes, "train: ", out.string(), " already holds a run (step ", newest->step,
            "); add --resume to go on with it, or choose another --out");

  const InterruptGuard guard;
  const Corpus corpus = prepare_corpus(config.data);
  const auto group = ProcessGroup::connect(environment, std::chrono::seconds(config.train.timeout_seconds));
  Trainer trainer(config, corpus, group);
  check_same_everywhere(trainer, corpus, *group);
  // Every rank must do the same, whatever it sees of the folder.
  const at::Tensor goes_on = at::tensor({resume && newest ? 1 : 0}, at::kLong);
  group->broadcast(goes_on);
  if (goes_on.item<int64_t>()) trainer.load(newest ? newest->folder : fs::path());
  if (writes) {
    fs::create_directories(out);
    write_atomically(out / "config.json",
                     [&](std::ostream& file) { file << to_json(trainer.config()).dump(2) << "\n"; });
    describe(trainer, corpus, group->size(), log);
    if (trainer.steps_done() > 0) log << "Goes on after step " << grouped(trainer.steps_done()) << "\n" << std::flush;
  }
  TrainResult result = Run(trainer, out, writes).go();
  result.parameters = parameter_count(language_model_parameters(trainer.config().model));
  return result;
}

}  // namespace fem
