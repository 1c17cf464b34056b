#include "parallel/gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/ranks.h"
#include "support/error_text.h"

namespace fem {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::run_ranks;

constexpr int64_t kOneEach = 1;  // bytes: no bucket takes two parameters

std::vector<at::Tensor> parameters(int64_t count) {
  std::vector<at::Tensor> made;
  for (int64_t i = 0; i < count; ++i) made.push_back(at::ones({i + 1, 3}).requires_grad_());
  return made;
}

// The gradient of parameter i is factor * (i + 1) throughout.
void backward(const std::vector<at::Tensor>& parameters, double factor) {
  at::Tensor loss = at::zeros({});
  for (size_t i = 0; i < parameters.size(); ++i)
    loss = loss + (parameters[i] * (factor * static_cast<double>(i + 1))).sum();
  loss.backward();
}

::testing::AssertionResult is_all(const at::Tensor& tensor, double value) {
  if (at::equal(tensor, at::full_like(tensor, value))) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected " << value << " throughout, got " << tensor;
}

// x * weight, where a backward of its own inside backward adds the gradient of the weight, as recomputation does.
class ProductByInnerBackward : public torch::autograd::Function<ProductByInnerBackward> {
 public:
  struct Hidden {  // from the outer graph
    at::Tensor weight;
  };
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Hidden& hidden) {
    context->save_for_backward({x});
    context->saved_data["weight"] = hidden.weight;
    return x * hidden.weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    (x * context->saved_data["weight"].toTensor()).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

at::Tensor chained(const at::Tensor& x, const at::Tensor& weight, int64_t times) {
  at::Tensor y = x;
  for (int64_t i = 0; i < times; ++i) y = ProductByInnerBackward::apply(y, ProductByInnerBackward::Hidden{weight});
  return y;
}

// A group of two whose other rank is silent; it writes down what is summed.
class Recorder : public ProcessGroup {
 public:
  struct Done : PendingReduction {
    void wait() override {}
  };
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  std::unique_ptr<PendingReduction> start_sum(at::Tensor tensor) override {
    events.push_back("sum of " + std::to_string(tensor.numel()));
    return std::make_unique<Done>();
  }
  void sum(at::Tensor) override {}
  void broadcast(at::Tensor) override {}
  void barrier() override {}

  std::vector<std::string> events;
};

class GradientsOfRanks : public ::testing::TestWithParam<int64_t> {};

TEST_P(GradientsOfRanks, AreSummedInEveryStep) {
  run_ranks(2, [](const auto& group) {
    const auto tensors = parameters(5);
    Gradients gradients(tensors, group, GetParam());
    for (int step = 1; step <= 3; ++step) {
      gradients.zero();
      gradients.reduce_in_next_backward();
      backward(tensors, step * (1.0 + static_cast<double>(group->rank())));
      gradients.finish();
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(is_all(tensors[i].grad(), 3.0 * step * static_cast<double>(i + 1))) << "parameter " << i;
        EXPECT_TRUE(tensors[i].grad().is_same(gradients.views()[i]));
      }
    }
  });
}

TEST_P(GradientsOfRanks, OfSeveralMicroBatchesAreAddedFirst) {
  run_ranks(2, [](const auto& group) {
    const auto tensors = parameters(3);
    Gradients gradients(tensors, group, GetParam());
    for (int step = 1; step <= 2; ++step) {
      gradients.zero();
      backward(tensors, 1);
      backward(tensors, 10);
      gradients.reduce_in_next_backward();
      backward(tensors, 100.0 * static_cast<double>(group->rank()));
      gradients.finish();
      for (size_t i = 0; i < tensors.size(); ++i)
        EXPECT_TRUE(is_all(tensors[i].grad(), 122.0 * static_cast<double>(i + 1))) << "parameter " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(BucketBytes, GradientsOfRanks, ::testing::Values(kOneEach, 128, 1 << 20));

TEST(Gradients, AParameterThatOnlyOneRankUsesGetsItsGradientAlone) {
  run_ranks(2, [](const auto& group) {
    const auto tensors = parameters(4);
    Gradients gradients(tensors, group, kOneEach);
    for (int step = 0; step < 2; ++step) {
      gradients.zero();
      gradients.reduce_in_next_backward();
      backward(group->rank() == 0 ? tensors : std::vector{tensors[0], tensors[1]}, 1);
      gradients.finish();
      EXPECT_TRUE(is_all(tensors[1].grad(), 4));
      EXPECT_TRUE(is_all(tensors[3].grad(), 4));
    }
  });
}

TEST(Gradients, AParameterUsedTwiceAndInsideInnerBackwardsIsSummedWhole) {
  run_ranks(2, [](const auto& group) {
    const at::Tensor tied = at::full({4}, 2.0).requires_grad_(), last = at::ones({4}).requires_grad_();
    Gradients gradients({last, tied}, group, kOneEach);
    for (int step = 0; step < 3; ++step) {
      gradients.zero();
      gradients.reduce_in_next_backward();
      // last tied^4, by two products of the graph and two inner ones: 4 tied^3 = 32.
      (chained(last * tied, tied, 2) * tied).sum().backward();
      gradients.finish();
      EXPECT_TRUE(is_all(tied.grad(), 2 * 32)) << "step " << step;
      EXPECT_TRUE(is_all(last.grad(), 2 * 16)) << "step " << step;
    }
  });
}

TEST(Gradients, ABucketIsSummedBeforeBackwardEnds) {
  const at::Tensor first = at::ones({16}).requires_grad_(), second = at::ones({2, 16}).requires_grad_();
  const auto group = std::make_shared<Recorder>();
  Gradients gradients({first, second}, group, kOneEach);
  for (int step = 0; step < 2; ++step) {
    group->events.clear();
    gradients.reduce_in_next_backward();
    const at::Tensor hidden = first.exp();
    hidden.register_hook([&](const at::Tensor&) { group->events.push_back("backward reaches the first layer"); });
    (second * hidden).sum().backward();
    group->events.push_back("backward ends");
    gradients.finish();
  }
  EXPECT_THAT(group->events,
              ElementsAre("sum of 32", "backward reaches the first layer", "sum of 16", "backward ends"));
}

TEST(Gradients, BucketsKeepTheirOrderWhateverArrivesFirst) {
  const at::Tensor first = at::ones({16}).requires_grad_(), second = at::ones({2, 16}).requires_grad_();
  const auto group = std::make_shared<Recorder>();
  Gradients gradients({first, second}, group, kOneEach);
  for (int step = 0; step < 2; ++step) {
    group->events.clear();
    gradients.reduce_in_next_backward();
    const at::Tensor hidden = second.exp();
    hidden.register_hook([&](const at::Tensor&) { group->events.push_back("first has arrived"); });
    (first * hidden).sum().backward();
    gradients.finish();
  }
  EXPECT_THAT(group->events, ElementsAre("first has arrived", "sum of 32", "sum of 16"));
}

TEST(Gradients, AGradientThatComesAfterItsSumHasBegunIsAnError) {
  const at::Tensor weight = at::ones({4}).requires_grad_(), x = at::ones({4}).requires_grad_();
  Gradients gradients({weight}, std::make_shared<Recorder>());
  gradients.reduce_in_next_backward();
  chained(x, weight, 2).sum().backward();
  gradients.finish();
  gradients.reduce_in_next_backward();
  EXPECT_TRUE(fails_with("gradients: expected no more than 2 gradients of parameter 0 [4] in one backward",
                         [&] { chained(x, weight, 3).sum().backward(); }));
}

TEST(Gradients, AReplacedGradientIsAnError) {
  const auto tensors = parameters(2);
  for (const auto& group : {ProcessGroup::connect({}, std::chrono::seconds(1)),
                            std::static_pointer_cast<ProcessGroup>(std::make_shared<Recorder>())}) {
    Gradients gradients(tensors, group);
    gradients.reduce_in_next_backward();
    tensors[1].mutable_grad() = at::Tensor();
    backward(tensors, 1);
    EXPECT_TRUE(
        fails_with("gradients: expected parameter 1 [2, 3] to keep the gradient it was given, a part of a "
                   "bucket, got another tensor",
                   [&] { gradients.finish(); }));
  }
}

TEST(Gradients, ParametersThatCannotBeReducedAreRefused) {
  const auto group = std::make_shared<Recorder>();
  const at::Tensor weight = at::ones({2}).requires_grad_();
  EXPECT_TRUE(fails_with("got parameter 1 that does not", [&] { Gradients({weight, at::ones({2})}, group); }));
  EXPECT_TRUE(fails_with("got parameter 1 again", [&] { Gradients({weight, weight}, group); }));
}

TEST(Gradients, OfOneProcessAreViewsWithoutHooks) {
  const auto tensors = parameters(3);
  Gradients gradients(tensors, ProcessGroup::connect({}, std::chrono::seconds(1)));
  for (int step = 0; step < 2; ++step) {
    gradients.zero();
    backward(tensors, 1);
    gradients.reduce_in_next_backward();
    backward(tensors, 1);
    gradients.finish();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(tensors[i]), nullptr);
    EXPECT_TRUE(is_all(gradients.views()[i], 2.0 * static_cast<double>(i + 1)));
    EXPECT_EQ(gradients.views()[i].storage().data(), gradients.views()[0].storage().data());
  }
}

TEST(Gradients, LeaveNoHooksBehind) {
  const auto tensors = parameters(2);
  {
    Gradients gradients(tensors, std::make_shared<Recorder>());
    EXPECT_NE(torch::autograd::impl::post_acc_grad_hooks(tensors[0]), nullptr);
  }
  EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(tensors[0]), nullptr);
  backward(tensors, 1);
}

}  // namespace
}  // namespace fem
