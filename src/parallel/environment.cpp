#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "parallel/process_group.h"
#include "util/check.h"

namespace fem {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
};

// MPI stands before Slurm: what mpirun starts inside a Slurm job inherits the job's SLURM_PROCID. A Slurm shell has
// SLURM_NTASKS too, but only srun sets the rank.
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};
constexpr int64_t kMostRanks = std::numeric_limits<int32_t>::max();
constexpr int kUsualPort = 29500;
// Jobs that share a machine get ports of their own, below those the system gives away.
constexpr int64_t kFirstJobPort = 15000, kJobPorts = 15000;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

int64_t number(const char* name, int64_t lowest, int64_t highest) {
  const std::string text = variable(name).value_or("");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  FEM_CHECK(error == std::errc() && end == text.data() + text.size() && value >= lowest && value <= highest,
            "train: expected the environment variable ", name, " to be a whole number from ", lowest, " to ", highest,
            ", got ", text.empty() ? "nothing" : "'" + text + "'");
  return value;
}

// rack[1-2]node[03,05],other -> rack1node03
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find_first_of(",-]", i), close = list.find(']', i);
    if (close == std::string::npos) return "";
    host += list.substr(i + 1, end - i - 1);
    i = close;
  }
  return host;
}

// Rank 0 runs on the first node of a Slurm step; srun itself may have been called elsewhere, on a login node.
std::string address_of_rank_0() {
  if (const auto given = variable("MASTER_ADDR")) return *given;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
    if (const auto nodes = variable(name)) return first_host(*nodes);
  return variable("SLURM_LAUNCH_NODE_IPADDR").value_or("");
}

int port_of_rank_0() {
  if (variable("MASTER_PORT")) return static_cast<int>(number("MASTER_PORT", 1, 65535));
  if (variable("SLURM_JOB_ID"))
    return static_cast<int>(kFirstJobPort + number("SLURM_JOB_ID", 0, std::numeric_limits<int64_t>::max()) % kJobPorts);
  return kUsualPort;
}

ParallelEnvironment started_by(const Launcher& launcher) {
  ParallelEnvironment environment;
  environment.size = number(launcher.size, 1, kMostRanks);
  environment.rank = number(launcher.rank, 0, kMostRanks);
  FEM_CHECK(environment.rank < environment.size, "train: expected the environment variable ", launcher.rank,
            " to be less than ", launcher.size, ", ", environment.size, ", got ", environment.rank,
            "; ranks count from 0");
  if (environment.size == 1) return environment;
  environment.address = address_of_rank_0();
  FEM_CHECK(!environment.address.empty(),
            "train: expected the environment variable MASTER_ADDR to name the machine of ",
            "rank 0, got nothing; set it, and MASTER_PORT, to the same value for all ", environment.size, " ranks");
  environment.port = port_of_rank_0();
  environment.store_is_served = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (variable("TORCHELASTIC_RESTART_COUNT"))
    environment.restart = number("TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<int64_t>::max());
  return environment;
}

}  // namespace

ParallelEnvironment parallel_environment() {
  FEM_CHECK(variable("RANK") || !variable("WORLD_SIZE"),
            "train: expected the environment variable RANK beside WORLD_SIZE, got nothing; start the ranks with "
            "torchrun --no-python, srun or mpirun, or unset WORLD_SIZE");
  for (const Launcher& launcher : kLaunchers)
    if (variable(launcher.rank)) return started_by(launcher);
  return {};
}

}  // namespace fem
