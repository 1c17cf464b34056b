#include "parallel/process_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/wait.h>

#include <future>
#include <map>

#include "parallel/ranks.h"
#include "support/error_text.h"

namespace fem {
namespace {

using std::chrono::seconds;
using testing::fails_with;
using testing::run_ranks;
using testing::unused_port;
using Variables = std::map<std::string, std::string>;

// Sets the variables of a launcher, and no other launcher's, for as long as it lives.
class Launched {
 public:
  explicit Launched(const Variables& variables) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
                             "TORCHELASTIC_RESTART_COUNT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                             "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                             "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Launched() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  Variables before_;
  std::vector<std::string> names_;
};

ParallelEnvironment environment_of(const Variables& variables) {
  const Launched launched(variables);
  return parallel_environment();
}

::testing::AssertionResult is_refused(const Variables& variables, const std::string& text) {
  return fails_with(text, [&] { environment_of(variables); });
}

TEST(ParallelEnvironment, IsOneProcessWithoutALauncher) {
  EXPECT_EQ(environment_of({}).size, 1);
  EXPECT_EQ(environment_of({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "17"}}).size, 1) << "a Slurm shell without srun";
  EXPECT_EQ(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).size, 1) << "needs no address";
}

TEST(ParallelEnvironment, ReadsTorchrun) {
  const ParallelEnvironment read = environment_of({{"RANK", "2"},
                                                   {"WORLD_SIZE", "4"},
                                                   {"MASTER_ADDR", "node7"},
                                                   {"MASTER_PORT", "1234"},
                                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                   {"TORCHELASTIC_RESTART_COUNT", "3"},
                                                   {"SLURM_PROCID", "0"},
                                                   {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.size, 4);
  EXPECT_EQ(read.address, "node7");
  EXPECT_EQ(read.port, 1234);
  EXPECT_TRUE(read.store_is_served);
  EXPECT_EQ(read.restart, 3);
  EXPECT_FALSE(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node7"}}).store_is_served);
}

TEST(ParallelEnvironment, ReadsSlurm) {
  Variables slurm{{"SLURM_PROCID", "1"},
                  {"SLURM_NTASKS", "2"},
                  {"SLURM_JOB_ID", "100017"},
                  {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
  EXPECT_EQ(environment_of(slurm).rank, 1);
  EXPECT_EQ(environment_of(slurm).size, 2);
  EXPECT_EQ(environment_of(slurm).address, "10.0.0.9");
  EXPECT_EQ(environment_of(slurm).port, 15000 + 100017 % 15000);
  for (const auto& [nodes, first] : Variables{{"gpu7", "gpu7"},
                                              {"gpu07,gpu09", "gpu07"},
                                              {"gpu[07-12,20],cpu1", "gpu07"},
                                              {"gpu[3]", "gpu3"},
                                              {"rack[1-2]node[03,05]", "rack1node03"}}) {
    slurm["SLURM_STEP_NODELIST"] = nodes;
    EXPECT_EQ(environment_of(slurm).address, first) << nodes;
  }
  slurm["MASTER_ADDR"] = "given";
  slurm["MASTER_PORT"] = "99";
  EXPECT_EQ(environment_of(slurm).address, "given");
  EXPECT_EQ(environment_of(slurm).port, 99);
}

TEST(ParallelEnvironment, ReadsMpi) {
  const ParallelEnvironment open = environment_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                                   {"OMPI_COMM_WORLD_SIZE", "3"},
                                                   {"MASTER_ADDR", "a"},
                                                   {"SLURM_PROCID", "0"},
                                                   {"SLURM_NTASKS", "3"}});
  EXPECT_EQ(open.rank, 1) << "mpirun inside a Slurm job";
  EXPECT_EQ(open.size, 3);
  EXPECT_EQ(open.port, 29500);
  EXPECT_EQ(environment_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MASTER_ADDR", "a"}}).rank, 2);
}

TEST(ParallelEnvironment, NamesTheVariableThatIsWrong) {
  const std::string expected = "train: expected the environment variable ";
  const Variables good{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    Variables changed = good;
    changed[name] = value;
    return changed;
  };
  EXPECT_TRUE(is_refused(with("RANK", "1x"), expected + "RANK to be a whole number from 0 to 2147483647, got '1x'"));
  EXPECT_TRUE(is_refused(with("RANK", "-1"), expected + "RANK to be a whole number"));
  EXPECT_TRUE(is_refused(with("RANK", "2"), expected + "RANK to be less than WORLD_SIZE, 2, got 2"));
  EXPECT_TRUE(is_refused(with("RANK", ""), expected + "RANK beside WORLD_SIZE, got nothing"));
  EXPECT_TRUE(is_refused(with("WORLD_SIZE", "two"), expected + "WORLD_SIZE to be a whole number"));
  EXPECT_TRUE(is_refused(with("WORLD_SIZE", "0"), expected + "WORLD_SIZE to be a whole number from 1"));
  EXPECT_TRUE(is_refused(with("WORLD_SIZE", ""),
                         expected + "WORLD_SIZE to be a whole number from 1 to 2147483647, got nothing"));
  EXPECT_TRUE(is_refused(with("WORLD_SIZE", "99999999999999999999"), expected + "WORLD_SIZE to be a whole number"));
  EXPECT_TRUE(is_refused(with("MASTER_PORT", "65536"), expected + "MASTER_PORT to be a whole number from 1 to 65535"));
  EXPECT_TRUE(is_refused(with("MASTER_ADDR", ""), expected + "MASTER_ADDR to name the machine of rank 0, got nothing"));
  EXPECT_TRUE(is_refused(with("TORCHELASTIC_RESTART_COUNT", "x"), expected + "TORCHELASTIC_RESTART_COUNT"));
  EXPECT_TRUE(is_refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "broken[1"}},
                         expected + "MASTER_ADDR"));
  EXPECT_TRUE(is_refused({{"PMI_RANK", "0"}}, expected + "PMI_SIZE"));
}

TEST(ProcessGroup, OfOneProcessDoesNothing) {
  const auto group = ProcessGroup::connect({}, seconds(1));
  const at::Tensor tensor = at::arange(3.0);
  group->sum(tensor);
  group->start_sum(tensor)->wait();
  group->broadcast(tensor);
  group->barrier();
  EXPECT_TRUE(at::equal(tensor, at::arange(3.0)));
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
}

TEST(ProcessGroup, SumsAndBroadcastsOverThreeRanks) {
  run_ranks(3, [](const auto& group) {
    const auto rank = static_cast<double>(group->rank());
    const at::Tensor sum = at::full({1000}, rank + 1), other = at::full({2}, 10 * rank);
    const auto first = group->start_sum(sum), second = group->start_sum(other);
    second->wait();
    first->wait();
    EXPECT_TRUE(at::equal(sum, at::full({1000}, 6.0)));
    EXPECT_TRUE(at::equal(other, at::full({2}, 30.0)));
    const at::Tensor count = at::full({}, group->rank() + 7, at::kLong);
    group->broadcast(count);
    EXPECT_EQ(count.item<int64_t>(), 7);
    group->sum(count);
    EXPECT_EQ(count.item<int64_t>(), 21);
    group->barrier();
  });
}

TEST(ProcessGroup, RefusesATensorItCouldNotReduceInPlace) {
  run_ranks(2, [](const auto& group) {
    EXPECT_TRUE(fails_with("process group: expected a contiguous tensor in main memory, got [3, 2]",
                           [&] { group->sum(at::zeros({2, 3}).t()); }));
  });
}

TEST(ProcessGroup, ReportsRanksThatNeverMeet) {
  const testing::BoundSocket stranger;
  listen(stranger.socket, 1);
  const auto fails = [](int64_t rank, int port, const std::string& reason) {
    const ParallelEnvironment lonely{.rank = rank, .size = 2, .address = "127.0.0.1", .port = port};
    const std::string text = "train: rank " + std::to_string(rank) +
                             " of 2 could not meet the others at 127.0.0.1:" + std::to_string(port) + " within 1 s (" +
                             reason;
    return fails_with(text, [&] { ProcessGroup::connect(lonely, seconds(1)); });
  };
  auto no_rank_1 = std::async(std::launch::async, [&] { return fails(0, unused_port(), "Timed out after"); });
  auto no_rank_0 = std::async(std::launch::async, [&] { return fails(1, unused_port(), ""); });
  auto no_store = std::async(std::launch::async, [&] { return fails(1, stranger.port, "what listens there"); });
  EXPECT_TRUE(fails(0, stranger.port, "The server socket has failed to listen")) << "the port is taken";
  EXPECT_TRUE(no_rank_1.get());
  EXPECT_TRUE(no_rank_0.get());
  EXPECT_TRUE(no_store.get());
}

TEST(ProcessGroup, ReportsARankThatDoesNotAnswer) {
  std::promise<void> reported;
  run_ranks(
      2,
      [&](const auto& group) {
        group->barrier();
        if (group->rank() == 1) return reported.get_future().wait();
        const at::Tensor tensor = at::ones({1000});
        std::vector<std::unique_ptr<PendingReduction>> pending;
        for (int i = 0; i < 4; ++i) pending.push_back(group->start_sum(tensor));
        EXPECT_TRUE(fails_with("train: rank 0 of 2 lost contact with another rank (no answer within 2 s)",
                               [&] { pending[0]->wait(); }));
        reported.set_value();
      },
      seconds(2));
}

// Run by the test below, in a process of its own, as rank 1: it ends without a word.
TEST(ProcessGroup, DISABLED_RankThatExits) {
  const auto group = ProcessGroup::connect(parallel_environment(), seconds(60));
  group->barrier();
  _exit(0);
}

TEST(ProcessGroup, ReportsARankThatIsGone) {
  const std::string port = std::to_string(unused_port());
  pid_t child = 0;
  {
    const Launched launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    std::string program = "/proc/self/exe", filter = "--gtest_filter=ProcessGroup.DISABLED_RankThatExits",
                disabled = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
    char* const arguments[] = {program.data(), filter.data(), disabled.data(), brief.data(), nullptr};
    ASSERT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
  }
  {
    const auto group =
        ProcessGroup::connect({.rank = 0, .size = 2, .address = "127.0.0.1", .port = std::stoi(port)}, seconds(60));
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(
        fails_with("train: rank 0 of 2 lost contact with another rank (", [&] { group->sum(at::ones({1000})); }));
    EXPECT_TRUE(fails_with("); start the same command again with --resume to go on from the last checkpoint",
                           [&] { group->barrier(); }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace fem
