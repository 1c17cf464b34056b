// The processes that train one model together.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace fem {

// Where this process stands, from the environment of torchrun (RANK, WORLD_SIZE), MPI (OMPI_COMM_WORLD_RANK, PMI_RANK,
// ...) or Slurm (SLURM_PROCID, SLURM_NTASKS); one process alone if there is none. Rank 0 listens at MASTER_ADDR and
// MASTER_PORT; Slurm's list of nodes and number of the job stand in for them.
struct ParallelEnvironment {
  int64_t rank = 0;
  int64_t size = 1;
  std::string address;  // of rank 0
  int port = 0;
  bool store_is_served = false;  // torchrun's own store listens there: every rank is a client
  int64_t restart = 0;
};
ParallelEnvironment parallel_environment();

// A reduction under way.
class PendingReduction {
 public:
  virtual ~PendingReduction() = default;
  virtual void wait() = 0;  // throws if a rank was lost
};

// Gloo over TCP; does nothing, at no cost, for one process alone. Every call throws one clear sentence when a rank is
// lost or does not answer in time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::unique_ptr<PendingReduction> start_sum(at::Tensor tensor) = 0;  // in place
  virtual void sum(at::Tensor tensor) = 0;
  virtual void broadcast(at::Tensor tensor) = 0;  // from rank 0
  virtual void barrier() = 0;

  static std::shared_ptr<ProcessGroup> connect(const ParallelEnvironment& environment, std::chrono::seconds timeout);
};

}  // namespace fem
