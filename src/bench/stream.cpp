#include "bench/stream.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "bench/machine.h"
#include "bench/memory.h"
#include "bench/paired.h"
#include "fem/mixer.h"
#include "fem/version.h"
#include "io/versions.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem::bench {
namespace {

constexpr double kMebibyte = 1048576;
constexpr double kTargetMebibytes = 1;  // of growth

// A layer, its state and an endless supply of tokens.
class Reader {
 public:
  Reader(const MixerOptions& options, const StreamSettings& settings)
      : mixer_(options), tokens_(at::randn({1, settings.piece, options.n_embd})) {}

  void read(int64_t length) {
    const at::NoGradGuard no_grad;
    mixer_->forward(tokens_.narrow(1, 0, length), state_);
  }

  // Tokens per second over count tokens, so many at a time; after() follows every call.
  double speed(int64_t count, int64_t at_once, const Work& after) {
    int64_t done = 0;
    const double ms = milliseconds([&] {
      for (; done < count && !interrupted(); after()) {
        const int64_t length = std::min(at_once, count - done);
        read(length);
        done += length;
      }
    });
    return static_cast<double>(done) / ms * 1000;
  }

  int64_t seen() const { return state_.tokens; }
  int64_t state_bytes() const { return bytes_of(state_); }

 private:
  FreeEnergyMixer mixer_;
  at::Tensor tokens_;
  MixerState state_;
};

MixerOptions options_of(PriorType prior, const StreamSettings& settings) {
  MixerOptions options;
  options.n_embd = settings.dim;
  options.n_head = settings.heads;
  options.prior_type = prior;
  if (prior == PriorType::kSoftmax) options.window = settings.window;
  return options;
}

std::string name_of(PriorType prior, const StreamSettings& settings) {
  return prior == PriorType::kSoftmax ? "softmax, window " + grouped(settings.window) : spelled(prior);
}

Stream read_stream(PriorType prior, const StreamSettings& s, Progress& progress, int64_t before) {
  Reader reader(options_of(prior, s), s);
  Stream stream{.layer = name_of(prior, s)};
  const auto show = [&] { progress.update(before + reader.seen(), stream.layer); };
  const auto end_of = [&](StreamPart& part, int64_t upto) {
    part.tokens_per_s = reader.speed(upto - s.single - reader.seen(), s.piece, show);
    part.single_tokens_per_s = reader.speed(s.single, 1, show);
    part.state_bytes = reader.state_bytes();
    part.resident_bytes = resident_bytes();
  };
  // The first calls fill what the allocator and the threads keep for themselves.
  end_of(stream.early, std::max(s.tokens / 100, 3 * s.piece + s.single));
  for (int tenth = 1; tenth < 10 && !interrupted(); ++tenth) {
    reader.speed(s.tokens * tenth / 10 - reader.seen(), s.piece, show);
    stream.resident.push_back(resident_bytes());
  }
  end_of(stream.late, s.tokens);
  stream.resident.push_back(stream.late.resident_bytes);
  stream.tokens = reader.seen();
  return stream;
}

std::string mebibytes(int64_t bytes, int digits) {
  return fixed(static_cast<double>(bytes) / kMebibyte, digits) + " MiB";
}

std::string speed_text(double tokens_per_s) { return grouped(std::llround(tokens_per_s)); }

}  // namespace

int64_t Stream::growth() const { return *std::max_element(resident.begin(), resident.end()) - early.resident_bytes; }

std::vector<Stream> bench_stream(const StreamSettings& settings) {
  Progress progress("bench stream", settings.tokens * static_cast<int64_t>(settings.priors.size()), "token");
  std::vector<Stream> streams;
  int64_t before = 0;
  // What the process keeps for itself, whatever the prior: memory of threads and allocator.
  if (!settings.priors.empty())
    Reader(options_of(settings.priors[0], settings), settings).speed(settings.tokens / 10, settings.piece, [] {});
  for (const PriorType prior : settings.priors) {
    if (interrupted()) break;
    streams.push_back(read_stream(prior, settings, progress, before));
    before += settings.tokens;
  }
  return streams;
}

void print_streams(const std::vector<Stream>& streams, const StreamSettings& settings, std::ostream& out) {
  Table speeds({"tokens/s", "tokens", "early", "late", "one by one, early", "late"});
  Table memory({"memory", "state, early", "late", "process, early", "at half", "late", "growth", "target", "met"});
  for (const Stream& s : streams) {
    speeds.add({s.layer, grouped(s.tokens), speed_text(s.early.tokens_per_s), speed_text(s.late.tokens_per_s),
                speed_text(s.early.single_tokens_per_s), speed_text(s.late.single_tokens_per_s)});
    memory.add({s.layer, mebibytes(s.early.state_bytes, 3), mebibytes(s.late.state_bytes, 3),
                mebibytes(s.early.resident_bytes, 1), mebibytes(s.resident[(s.resident.size() - 1) / 2], 1),
                mebibytes(s.late.resident_bytes, 1), mebibytes(s.growth(), 1),
                "<= " + fixed(kTargetMebibytes, 0) + " MiB",
                static_cast<double>(s.growth()) <= kTargetMebibytes * kMebibyte ? "yes" : "no"});
  }
  out << speeds.str() << "\n"
      << memory.str() << "\nA layer of D " << settings.dim << ", H " << settings.heads
      << ", B 1, float32, in pieces of " << grouped(settings.piece) << " tokens, " << grouped(settings.single)
      << " one by one where it says so.\nEarly is the first hundredth of the tokens; the process is its resident set, "
      << "looked at after every tenth.\n"
      << at::get_num_threads() << " threads, " << instruction_set() << " kernels, torch " << TORCH_VERSION << ".\n";
}

void write_stream_json(const std::vector<Stream>& streams, const StreamSettings& settings, std::ostream& out) {
  for (const Stream& s : streams) {
    const auto part = [](const StreamPart& p) -> nlohmann::ordered_json {
      return {{"tokens_per_s", p.tokens_per_s},
              {"single_tokens_per_s", p.single_tokens_per_s},
              {"state_bytes", p.state_bytes},
              {"resident_bytes", p.resident_bytes}};
    };
    const nlohmann::ordered_json line{
        {"bench", "stream"},          {"layer", s.layer},           {"tokens", s.tokens},
        {"piece", settings.piece},    {"dim", settings.dim},        {"heads", settings.heads},
        {"early", part(s.early)},     {"late", part(s.late)},       {"resident_bytes", s.resident},
        {"growth_bytes", s.growth()}, {"versions", versions_json()}};
    out << line.dump() << "\n";
  }
}

}  // namespace fem::bench
