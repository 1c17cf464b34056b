#include "data/shards.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "data/token_stream.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"

namespace fem {
namespace {

constexpr uint64_t kSmallestShard = 2 << 20, kLargestShard = 16 << 20;
constexpr uint64_t kShards = 64;  // enough to keep every thread busy, as long as they do not become too small

struct ShardJob {
  size_t plan;
  int64_t index = 0;
  std::vector<TextPart> parts = {};
  uint64_t bytes = 0;
  StreamSize written = {};
};

std::vector<ShardJob> jobs_of(const std::vector<StreamPlan>& plans) {
  uint64_t total = 0;
  for (const StreamPlan& plan : plans)
    for (const TextPart& part : plan.parts) total += part.bytes();
  const uint64_t shard_bytes = std::clamp(total / kShards, kSmallestShard, kLargestShard);
  std::vector<ShardJob> jobs;
  for (size_t plan = 0; plan < plans.size(); ++plan) {
    jobs.push_back({plan});
    for (const TextPart& part : plans[plan].parts) {
      if (jobs.back().bytes > 0 && jobs.back().bytes + part.bytes() > shard_bytes)
        jobs.push_back({plan, jobs.back().index + 1});
      jobs.back().parts.push_back(part);
      jobs.back().bytes += part.bytes();
    }
  }
  return jobs;
}

class Workers {
 public:
  Workers(const std::vector<StreamPlan>& plans, const Tokenizer& tokenizer)
      : plans_(plans), tokenizer_(tokenizer), jobs_(jobs_of(plans)), counts_(plans.size()) {
    for (const ShardJob& job : jobs_) ++counts_[job.plan];
  }

  std::vector<StreamSize> run() {
    uint64_t total = 0;
    for (const ShardJob& job : jobs_) total += job.bytes;
    {
      Progress progress("tokenizing", static_cast<int64_t>(total), "B");
      std::vector<std::future<void>> workers;
      const size_t threads = std::max(std::thread::hardware_concurrency(), 1u);
      for (size_t i = 0; i < std::min(threads, jobs_.size()); ++i)
        workers.push_back(std::async(std::launch::async, [this] { work(); }));
      for (auto& worker : workers) {
        while (worker.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
          progress.update(static_cast<int64_t>(done_));
        worker.get();
      }
      progress.update(static_cast<int64_t>(done_));
    }
    if (failure_) std::rethrow_exception(failure_);
    FEM_CHECK(!interrupted(), "corpus: interrupted while tokenizing; nothing was kept, start again");
    std::vector<StreamSize> sizes(plans_.size());
    for (const ShardJob& job : jobs_) {
      sizes[job.plan].tokens += job.written.tokens;
      sizes[job.plan].bytes += job.written.bytes;
    }
    return sizes;
  }

 private:
  // Nothing is wanted of what comes after the first failure; what comes before it, and has begun, may fail as well.
  bool stopped(size_t job) const { return job > failed_ || interrupted(); }

  void work() {
    for (size_t job; (job = next_++) < jobs_.size() && !stopped(job);) {
      try {
        write(job);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (job < failed_) failure_ = std::current_exception();
        failed_ = std::min<size_t>(failed_, job);
      }
    }
  }

  void write(size_t number) {
    ShardJob& job = jobs_[number];
    std::vector<int64_t> tokens;
    for (const TextPart& part : job.parts) {
      for_each_document(part, [&](std::string_view text, bool begins) {
        if (stopped(number)) return;
        if (begins) tokens.push_back(tokenizer_.separator());
        const std::vector<int64_t> encoded = begins ? tokenizer_.encode(text) : tokenizer_.encode_more(text);
        tokens.insert(tokens.end(), encoded.begin(), encoded.end());
        job.written.bytes += static_cast<int64_t>(text.size());
      });
      if (stopped(number)) return;
      done_ += part.bytes();
    }
    job.written.tokens = static_cast<int64_t>(tokens.size());
    write_token_shard(plans_[job.plan].folder, job.index, counts_[job.plan], tokens, job.written.bytes, tokenizer_);
  }

  const std::vector<StreamPlan>& plans_;
  const Tokenizer& tokenizer_;
  std::vector<ShardJob> jobs_;
  std::vector<int64_t> counts_;  // jobs of every plan
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> done_ = 0;
  std::mutex mutex_;
  std::atomic<size_t> failed_ = SIZE_MAX;  // the first job that failed, and how
  std::exception_ptr failure_;
};

}  // namespace

std::vector<StreamSize> write_token_streams(const std::vector<StreamPlan>& plans, const Tokenizer& tokenizer) {
  return Workers(plans, tokenizer).run();
}

}  // namespace fem
