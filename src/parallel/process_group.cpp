#include "parallel/process_group.h"

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "parallel/gloo.h"
#include "util/check.h"

namespace fem {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// The first line without the place in Gloo's sources in front: "Connection closed by peer [10.0.0.2]:41234".
std::string short_reason(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  if (text.starts_with('['))
    if (const size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  for (const char* rest : {"\n", ". This is typically caused by"}) text.erase(std::min(text.find(rest), text.size()));
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return text;
}

// The connections of one rank, shared with its pending reductions.
class Connections {
 public:
  Connections(const ParallelEnvironment& environment, std::chrono::seconds timeout, c10::intrusive_ptr<Gloo> gloo)
      : rank(environment.rank), size(environment.size), timeout_(timeout), gloo_(std::move(gloo)) {}

  // Gloo's destructor waits for every operation, and those that involve a lost rank may never end: such connections
  // are left to the end of the process.
  ~Connections() {
    if (unfinished_ > 0) gloo_.release();
  }

  template <typename Operation>
  c10::intrusive_ptr<c10d::Work> start(Operation operation) {
    ++unfinished_;
    c10::intrusive_ptr<c10d::Work> work;
    report_loss([&] { work = operation(*gloo_); });
    return work;
  }

  void finish(c10d::Work& work) {
    report_loss([&] { work.wait(); });
    --unfinished_;
  }

  const int64_t rank, size;

 private:
  template <typename Action>
  void report_loss(Action action) const {
    try {
      action();
    } catch (const std::exception& error) {
      std::string reason = short_reason(error);
      // Gloo says it in one way of the operation that waited, in another of those behind it.
      if (reason.find("Timed out") != std::string::npos || reason.find("timeout") != std::string::npos)
        reason = "no answer within " + std::to_string(timeout_.count()) + " s";
      FEM_CHECK(false, "train: rank ", rank, " of ", size, " lost contact with another rank (", reason,
                "); start the same command again with --resume to go on from the last checkpoint");
    }
  }

  const std::chrono::seconds timeout_;
  c10::intrusive_ptr<Gloo> gloo_;
  int64_t unfinished_ = 0;
};

class GlooReduction : public PendingReduction {
 public:
  GlooReduction(std::shared_ptr<Connections> connections, c10::intrusive_ptr<c10d::Work> work)
      : connections_(std::move(connections)), work_(std::move(work)) {}
  void wait() override {
    if (work_) connections_->finish(*work_);
    work_.reset();
  }

 private:
  std::shared_ptr<Connections> connections_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class GlooGroup : public ProcessGroup {
 public:
  explicit GlooGroup(std::shared_ptr<Connections> connections) : connections_(std::move(connections)) {}

  int64_t rank() const override { return connections_->rank; }
  int64_t size() const override { return connections_->size; }
  std::unique_ptr<PendingReduction> start_sum(at::Tensor tensor) override {
    check(tensor);
    return std::make_unique<GlooReduction>(connections_, connections_->start([&](Gloo& gloo) {
      std::vector<at::Tensor> tensors{tensor};
      return gloo.allreduce(tensors);
    }));
  }
  void sum(at::Tensor tensor) override { start_sum(std::move(tensor))->wait(); }
  void broadcast(at::Tensor tensor) override {
    check(tensor);
    connections_->finish(*connections_->start([&](Gloo& gloo) {
      std::vector<at::Tensor> tensors{tensor};
      return gloo.broadcast(tensors);
    }));
  }
  void barrier() override {
    connections_->finish(*connections_->start([](Gloo& gloo) { return gloo.barrier(); }));
  }

 private:
  static void check(const at::Tensor& tensor) {
    FEM_CHECK(tensor.is_cpu() && tensor.is_contiguous(),
              "process group: expected a contiguous tensor in main memory, got ", shape_of(tensor), " with strides ",
              tensor.strides(), " on ", tensor.device());
  }

  std::shared_ptr<Connections> connections_;
};

class NothingPending : public PendingReduction {
  void wait() override {}
};

class OneProcess : public ProcessGroup {
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::unique_ptr<PendingReduction> start_sum(at::Tensor) override { return std::make_unique<NothingPending>(); }
  void sum(at::Tensor) override {}
  void broadcast(at::Tensor) override {}
  void barrier() override {}
};

// The address from which this machine reaches rank 0, empty if there is no way. The machine's own name, Gloo's choice,
// often stands for an address that only the machine itself can reach.
std::string own_address(const ParallelEnvironment& environment) {
  const addrinfo datagrams{.ai_socktype = SOCK_DGRAM};  // connecting one sends nothing
  addrinfo* found = nullptr;
  if (getaddrinfo(environment.address.c_str(), std::to_string(environment.port).c_str(), &datagrams, &found) != 0)
    return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (; found; found = found->ai_next) {
    const int probe = socket(found->ai_family, found->ai_socktype, 0);
    if (probe < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char name[NI_MAXHOST];
    const bool known =
        ::connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0;
    close(probe);
    if (known) return name;
  }
  return "";
}

c10::intrusive_ptr<Gloo::Options> gloo_options(const ParallelEnvironment& environment, std::chrono::seconds timeout) {
  const std::string address = std::getenv("GLOO_SOCKET_IFNAME") ? "" : own_address(environment);
  if (address.empty()) return Gloo::Options::create_default(timeout);
  auto options = Gloo::Options::create(timeout);
  options->devices.push_back(Gloo::createDeviceForHostname(address));
  return options;
}

// torch writes pages of stack frames about an attempt to connect that failed; one sentence says it.
class QuietTorch {
 public:
  QuietTorch() {
    if (connecting_++ == 0 && !std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
  ~QuietTorch() {
    if (--connecting_ == 0) FLAGS_caffe2_log_level = usual_level_;
  }

 private:
  inline static const int usual_level_ = FLAGS_caffe2_log_level;
  inline static std::atomic<int> connecting_ = 0;  // threads
};

c10::intrusive_ptr<Gloo> connected(const ParallelEnvironment& environment, std::chrono::seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.port);
  options.isServer = environment.rank == 0 && !environment.store_is_served;
  options.numWorkers = static_cast<size_t>(environment.size);
  options.timeout = timeout;
  // Keys of an earlier start under the same torchrun would lead to processes that are gone.
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      "fem/" + std::to_string(environment.restart), c10::make_intrusive<c10d::TCPStore>(environment.address, options));
  return c10::make_intrusive<Gloo>(store, static_cast<int>(environment.rank), static_cast<int>(environment.size),
                                   gloo_options(environment, timeout));
}

// torch's store waits without end for the answer of a server that is none: the attempt has a thread of its own, which
// is then left behind.
c10::intrusive_ptr<Gloo> connected_in_time(const ParallelEnvironment& environment, std::chrono::seconds timeout) {
  std::packaged_task<c10::intrusive_ptr<Gloo>()> attempt([=] { return connected(environment, timeout); });
  auto result = attempt.get_future();
  std::thread(std::move(attempt)).detach();
  // torch keeps the time limit twice, for the store and for the connections.
  if (result.wait_for(2 * timeout + std::chrono::seconds(1)) != std::future_status::ready)
    throw std::runtime_error("what listens there does not answer");
  return result.get();
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::connect(const ParallelEnvironment& environment,
                                                    std::chrono::seconds timeout) {
  if (environment.size == 1) return std::make_shared<OneProcess>();
  c10::intrusive_ptr<Gloo> gloo;
  try {
    const QuietTorch quiet;
    gloo = connected_in_time(environment, timeout);
  } catch (const std::exception& error) {
    FEM_CHECK(false, "train: rank ", environment.rank, " of ", environment.size, " could not meet the others at ",
              environment.address, ":", environment.port, " within ", timeout.count(), " s (", short_reason(error),
              "); start every rank, all with the MASTER_ADDR of rank 0 and one free MASTER_PORT, and where machines ",
              "have several networks, name the interface in GLOO_SOCKET_IFNAME");
  }
  return std::make_shared<GlooGroup>(std::make_shared<Connections>(environment, timeout, std::move(gloo)));
}

}  // namespace fem
