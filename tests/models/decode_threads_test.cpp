// What is decoded does not depend on the number of threads, to the last bit.
#include <ATen/ATen.h>

#include "fem/language_model.h"
#include "models/small_models.h"
#include "support/kernel_test.h"

namespace fem {
namespace {

using testing::every_mixer;
using testing::MixerChoice;
using testing::ScopedThreads;

class DecodingBy : public ::testing::TestWithParam<MixerChoice> {};
INSTANTIATE_TEST_SUITE_P(Every, DecodingBy, ::testing::ValuesIn(every_mixer()),
                         [](const auto& info) { return testing::name_of(info.param); });

// 1,100 tokens are cut into parts by every read that cuts; two rows of them, and steps of one token and of three.
TEST_P(DecodingBy, AnyNumberOfThreadsGivesTheSameBits) {
  const at::NoGradGuard no_gradients;
  constexpr int64_t kVocabulary = 11;
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t batch : {1, 2}) {
      LanguageModel model = testing::random_model(GetParam(), kVocabulary);
      model->to(dtype);
      model->eval();
      at::manual_seed(3);
      const at::Tensor tokens = at::randint(kVocabulary, {batch, 1100 + 5}, at::kLong);
      const auto threads = [](int count) { return ScopedThreads(count); };
      LanguageModelState past;
      {
        const ScopedThreads one = threads(1);
        model->forward(tokens.slice(1, 0, 1100), past);
      }
      std::vector<at::Tensor> logits;
      for (const int count : {1, 2, 3, 7}) {
        const ScopedThreads some = threads(count);
        LanguageModelState state = past;
        std::vector<at::Tensor> steps;
        for (const auto& [begin, end] : {std::pair{1100, 1101}, {1101, 1102}, {1102, 1105}})
          steps.push_back(model->forward(tokens.slice(1, begin, end), state));
        logits.push_back(at::cat(steps, 1));
        EXPECT_TRUE(at::equal(logits.back(), logits.front())) << dtype << ", " << batch << " rows, " << count;
      }
      EXPECT_FALSE(logits.front().isnan().any().item<bool>());
    }
}

}  // namespace
}  // namespace fem
