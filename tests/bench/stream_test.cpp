#include "bench/stream.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <optional>
#include <sstream>

#include "bench/memory.h"
#include "fem/mixer.h"

namespace fem::bench {
namespace {

// One thread: two may or may not hold their scratch at the same time.
class StreamOf : public ::testing::TestWithParam<PriorType> {
 protected:
  StreamOf() {
    at::set_num_threads(1);
    options.n_embd = 32;
    options.n_head = 2;
    options.prior_type = GetParam();
    if (GetParam() == PriorType::kSoftmax) options.window = 100;
  }
  ~StreamOf() override { at::set_num_threads(threads); }

  const int threads = at::get_num_threads();
  const at::NoGradGuard no_grad;
  MixerOptions options;
};

std::vector<PriorType> priors_but(std::optional<PriorType> left_out) {
  std::vector<PriorType> priors;
  for (const auto& [name, prior] : Spelling<PriorType>::values)
    if (prior != left_out) priors.push_back(prior);
  return priors;
}
INSTANTIATE_TEST_SUITE_P(Prior, StreamOf, ::testing::ValuesIn(priors_but({})),
                         [](const auto& info) { return spelled(info.param); });

// In every thousand tokens the same memory is asked for and the same is kept: exactly, whatever the position.
TEST_P(StreamOf, TwentyThousandTokensNeedWhatTheFirstNeed) {
  FreeEnergyMixer mixer(options);
  MixerState state;
  const at::Tensor x = at::randn({1, 250, options.n_embd});
  const auto thousand = [&] {
    return memory_of([&] {
      for (int i = 0; i < 3; ++i) mixer(x, state);
      for (int64_t t = 0; t < 250; ++t) mixer(x.narrow(1, t, 1), state);
    });
  };
  thousand();
  const Memory early = thousand();
  EXPECT_GT(early.kept_bytes, 0);
  for (int i = 2; i < 20; ++i) {
    const Memory late = thousand();
    EXPECT_EQ(late.peak_bytes, early.peak_bytes) << "after " << state.tokens;
    EXPECT_EQ(late.kept_bytes, early.kept_bytes) << "after " << state.tokens;
    EXPECT_EQ(late.allocations, early.allocations) << "after " << state.tokens;
  }
  EXPECT_EQ(state.tokens, 20000);
}

// Of the priors whose memory does not depend on the position; a cache would have to be as long.
using FarStreamOf = StreamOf;
INSTANTIATE_TEST_SUITE_P(Prior, FarStreamOf, ::testing::ValuesIn(priors_but(PriorType::kSoftmax)),
                         [](const auto& info) { return spelled(info.param); });

TEST_P(FarStreamOf, ATokenNeedsWhatANearOneNeeds) {
  FreeEnergyMixer mixer(options);
  MixerState state;
  const at::Tensor x = at::randn({1, 7, options.n_embd});
  mixer(x, state);
  MixerState far = state;
  far.tokens = int64_t{1} << 40;
  const Memory here = memory_of([&] { mixer(x, state); }), there = memory_of([&] { mixer(x, far); });
  EXPECT_EQ(there.peak_bytes, here.peak_bytes);
  EXPECT_EQ(there.kept_bytes, here.kept_bytes);
}

TEST(BenchStream, MeasuresBothEndsOfEveryStream) {
  const StreamSettings settings{.priors = {PriorType::kGla, PriorType::kSoftmax},
                                .tokens = 20000,
                                .piece = 500,
                                .single = 100,
                                .window = 64,
                                .dim = 32,
                                .heads = 2};
  const std::vector<Stream> streams = bench_stream(settings);
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0].layer, "gla");
  EXPECT_EQ(streams[1].layer, "softmax, window 64");
  for (const Stream& s : streams) {
    EXPECT_EQ(s.tokens, 20000);
    EXPECT_EQ(s.resident.size(), 10U);
    EXPECT_GT(s.early.resident_bytes, 1 << 20);
    for (const StreamPart* part : {&s.early, &s.late}) {
      EXPECT_GT(part->tokens_per_s, 0);
      EXPECT_GT(part->single_tokens_per_s, 0);
      EXPECT_GT(part->state_bytes, 0);
    }
  }
  EXPECT_EQ(streams[0].late.state_bytes, streams[0].early.state_bytes);
  std::ostringstream table, json;
  print_streams(streams, settings, table);
  write_stream_json(streams, settings, json);
  EXPECT_THAT(table.str(), ::testing::HasSubstr("softmax, window 64"));
  EXPECT_THAT(json.str(), ::testing::HasSubstr("\"growth_bytes\":"));
}

// Memory that is really taken shows: what is kept and written to is resident.
TEST(BenchStream, ResidentBytesSeeWhatIsKept) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = resident_bytes();
  const at::Tensor kept = at::ones({kBytes}, at::kByte);
  EXPECT_GE(resident_bytes() - before, kBytes * 9 / 10);
  EXPECT_EQ(kept[0].item<uint8_t>(), 1);
}

}  // namespace
}  // namespace fem::bench
