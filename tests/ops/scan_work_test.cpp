// The division of a scan's work, and a scan that is nothing but its division: h <- 3 h + x, in whole numbers.
#include "ops/scan_work.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <cmath>
#include <map>

#include "support/kernel_test.h"

namespace fem::testing {
namespace {

struct Drawn {
  std::vector<Sequence> sequences;
  ScanPlan plan;
  int64_t tokens;
};

Drawn any_work(int64_t longest) {
  const auto lengths =
      *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(0, 5), rc::gen::inRange<int64_t>(0, longest));
  Drawn drawn{{}, {}, 0};
  for (const int64_t length : lengths) {
    drawn.sequences.push_back({0, drawn.tokens, drawn.tokens + length});
    drawn.tokens += length;
  }
  drawn.plan = {*rc::gen::inRange<int64_t>(1, 5), *rc::gen::element<int64_t>(1, 10000),
                *rc::gen::inRange<int64_t>(0, 9), *rc::gen::inRange<int64_t>(1, 9),
                *rc::gen::arbitrary<bool>(),      *rc::gen::inRange<int64_t>(1, 4),
                *rc::gen::inRange<int64_t>(2, 4)};
  return drawn;
}

TEST(ScanWork, EverySequenceIsCutOnItsOwnUnitsAndEveryGroupIsDoneOnce) {
  EXPECT_TRUE(rc::check([] {
    const ScopedThreads threads(*rc::gen::inRange(1, 9));
    const auto [sequences, plan, tokens] = any_work(200);
    const ScanWork work(sequences, plan);
    RC_ASSERT(work.parts() >= 1 && work.parts() <= at::get_num_threads());

    int64_t at = 0, sequence = -1;
    std::map<int64_t, int64_t> checkpoints;  // to the tokens they are before
    for (const Segment& s : work.segments()) {
      if (s.first) ++sequence;
      RC_ASSERT(s.sequence == sequence && s.begin == at);
      const Sequence& whole = sequences[sequence];
      RC_ASSERT(s.first == (s.begin == whole.begin) || s.begin == s.end);
      RC_ASSERT(s.last == (s.end == whole.end) || s.begin == s.end);
      RC_ASSERT((s.begin - whole.begin) % plan.unit == 0);
      RC_ASSERT((s.first && s.last) || s.end - s.begin > (plan.least_units - 1) * plan.unit);
      for (int64_t t = s.begin, index = s.checkpoint; t < s.end; t += plan.unit, ++index)
        if (plan.keeps_first || t > whole.begin) RC_ASSERT(checkpoints.emplace(index, t).second);
      at = s.end;
    }
    RC_ASSERT(at == tokens && sequence + 1 == static_cast<int64_t>(sequences.size()));
    // They fill the room that there is for them, whatever is packed.
    const int64_t room = plan.keeps_first ? tokens / plan.unit + static_cast<int64_t>(sequences.size())
                                          : std::max<int64_t>(tokens - 1, 0) / plan.unit;
    RC_ASSERT(static_cast<int64_t>(checkpoints.size()) <= room);
    for (const auto& [index, token] : checkpoints) RC_ASSERT(index >= 0 && index < room);

    const auto segments = static_cast<int64_t>(work.segments().size());
    std::vector<std::atomic<int>> done(segments * plan.groups);
    std::vector<std::atomic<int>> ranks(segments * work.most_shares());
    work.run(0, [&](const Share& share, const Segment&, float*) {
      for (int64_t g = share.groups.begin; g < share.groups.end; ++g) ++done[share.segment * plan.groups + g];
      ++ranks[share.segment * work.most_shares() + share.rank];
    });
    for (const auto& times : done) RC_ASSERT(times == 1);
    for (const auto& times : ranks) RC_ASSERT(times <= 1);
  }));
}

// One number a group: from the state before the tokens to the one after, in either way.
float scanned(const float* x, const Segment& s, Way way, float state) {
  for (int64_t n = 0; n < s.end - s.begin; ++n)
    state = 3 * state + x[way == Way::kForward ? s.begin + n : s.end - 1 - n];
  return state;
}

TEST(ScanWork, StatesBetweenSegmentsAreThoseOfTheWholeSequence) {
  EXPECT_TRUE(rc::check([] {
    const ScopedThreads threads(*rc::gen::inRange(1, 9));
    // So short that all is exact in float32.
    const auto [sequences, plan, tokens] = any_work(14);
    if (sequences.empty()) return;
    const auto count = static_cast<int64_t>(sequences.size());
    const ScanWork work(sequences, plan);
    const at::Tensor x = at::randint(-1, 2, {tokens}, at::kFloat),
                     given = at::randint(0, 2, {count, plan.groups}, at::kFloat);
    const float* token = x.const_data_ptr<float>();
    for (const Way way : {Way::kForward, Way::kBackward}) {
      const at::Tensor checkpoints = at::zeros({tokens + count, plan.groups}), wanted = at::empty({count, plan.groups});
      const ScanStates states = way == Way::kForward ? work.states(plan.groups, given, checkpoints, wanted)
                                                     : work.gradients(plan.groups, given, wanted);
      work.run_ahead(
          states, 1, 0,
          [&](const Segment& s, Groups groups, const float* entering, float* leaving, float* decay, float*) {
            for (int64_t g = groups.begin; g < groups.end; ++g)
              leaving[g] = scanned(token, s, way, entering ? entering[g] : 0);
            if (groups.begin == 0) *decay = std::pow(3.0f, static_cast<float>(s.end - s.begin));
          },
          [&](const Segment&, Groups groups, const float* entering, const float* decay, float* leaving) {
            for (int64_t g = groups.begin; g < groups.end; ++g) leaving[g] += *decay * entering[g];
          });
      work.run(0, [&](const Share& share, const Segment& s, float*) {
        const float* entering = states.entering(share.segment);
        for (int64_t g = share.groups.begin; g < share.groups.end; ++g)
          if (float* result = states.result(share.segment)) result[g] = scanned(token, s, way, entering[g]);
      });
      for (int64_t n = 0; n < count; ++n)
        for (int64_t g = 0; g < plan.groups; ++g) {
          const Segment whole{n, 0, sequences[n].begin, sequences[n].end, 0, true, true};
          RC_ASSERT(wanted[n][g].item<float>() == scanned(token, whole, way, given[n][g].item<float>()));
        }
    }
  }));
}

}  // namespace
}  // namespace fem::testing
