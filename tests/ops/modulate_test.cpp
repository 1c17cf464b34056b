#include "fem/ops/modulate.h"

#include <torch/csrc/autograd/autograd.h>

#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

using Modulate = KernelTest;
FEM_ON_EVERY_ISA(Modulate);

enum class After { kNothing, kRotation, kFeatures, kClip };

struct Case {
  int64_t batch, tokens, heads, width, hidden;  // hidden 0: no modulation
  After after;
  bool row_positions = false;
  bool added = false;
  Dialect dialect = Dialect::kCorrected;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {1, 1, 1, 2, 3, After::kNothing},
      {2, 63, 3, 7, 5, After::kNothing},
      {2, 111, 2, 64, 64, After::kRotation},
      {3, 40, 1, 22, 6, After::kFeatures, true},
      {1, 200, 3, 100, 33, After::kFeatures},
      {2, 97, 5, 12, 16, After::kClip},
      {1, 1000, 4, 64, 64, After::kClip},
      {1, 96, 2, 300, 40, After::kRotation},
      {2, 30, 2, 6, 0, After::kRotation},
      {2, 30, 2, 5, 0, After::kClip},
      {1, 193, 9, 60, 17, After::kRotation, true},
      {1, 50, 33, 1, 8, After::kNothing},
      {2, 3, 2, 8, 5, After::kNothing, false, true},
      {2, 63, 3, 7, 5, After::kNothing, false, true},
      {1, 111, 2, 64, 64, After::kRotation, true, true},
      {1, 200, 3, 100, 33, After::kFeatures, false, true},
      {2, 97, 5, 12, 16, After::kClip, false, true},
      {1, 130, 1, 550, 9, After::kNothing, false, true},
      {2, 150, 2, 10, 4, After::kRotation, false, false, Dialect::kReference},
      {1, 70, 3, 26, 0, After::kFeatures, true, false, Dialect::kReference},
  };
  return all;
}

struct Inputs {
  std::vector<at::Tensor> tensors;  // x, hidden, weight, limit; undefined where there is none
  at::Tensor positions;

  static Inputs of(const Case& c) {
    const bool modulated = c.hidden > 0;
    return {{at::randn({c.batch, c.tokens, c.heads, c.width}),
             modulated ? at::randn({c.batch, c.tokens, c.hidden}) : at::Tensor(),
             modulated ? at::randn({c.hidden, c.heads * c.width}) * 0.3 : at::Tensor(),
             c.after == After::kClip ? at::rand({c.heads, c.width}) + 0.5 : at::Tensor()},
            c.row_positions ? at::randint(0, 1000, {c.batch, c.tokens}) : at::arange(c.tokens)};
  }
};

AfterModulation after_of(const Case& c, const at::Tensor& positions, const at::Tensor& limit) {
  AfterModulation after;
  if (c.after == After::kRotation || c.after == After::kFeatures)
    after.rotation = rotation_of(positions, c.width, 10000.0, c.dialect);
  if (c.after == After::kFeatures) after.floor = 0.25;
  if (limit.defined()) after.limit = limit;
  return after;
}

at::Tensor by_operator(const at::Tensor& x, const Modulation& modulation, const AfterModulation& after) {
  return modulate(x, modulation, after);
}

// y, then the gradients of all inputs there are, computed in dtype on inputs rounded to low.
template <typename Function>
std::vector<at::Tensor> run(Function function, const Case& c, const Inputs& in, const at::Tensor& g, at::ScalarType low,
                            at::ScalarType dtype) {
  std::vector<at::Tensor> leaves, wanted;
  for (const at::Tensor& t : in.tensors) {
    leaves.push_back(t.defined() ? t.to(low).to(dtype).detach().clone().requires_grad_() : t);
    if (t.defined()) wanted.push_back(leaves.back());
  }
  const at::Tensor y =
      function(leaves[0], Modulation{leaves[1], leaves[2], c.added}, after_of(c, in.positions, leaves[3]));
  std::vector<at::Tensor> out = torch::autograd::grad({y}, wanted, {g.to(low).to(dtype)});
  out.insert(out.begin(), y);
  return out;
}

TEST_P(Modulate, KernelMatchesTheDefinitionForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Case& c : cases()) {
      SCOPED_TRACE(::testing::Message() << at::toString(dtype) << " T" << c.tokens << " H" << c.heads << " K"
                                        << c.width);
      const Inputs in = Inputs::of(c);
      const at::Tensor g = at::randn_like(in.tensors[0]);
      const auto actual = run(by_operator, c, in, g, dtype, dtype);
      const auto expected = run(modulate_definition, c, in, g, dtype, at::kDouble);
      for (size_t i = 0; i < actual.size(); ++i) {
        // Where the rounding of the factor decides between clipped and not, or above the floor and not, an element
        // may fall on either side; all others must agree.
        if (dtype == at::kBFloat16 && c.after != After::kNothing && i > 0) continue;
        EXPECT_TRUE(close(actual[i], expected[i], i == 0 ? forward_tolerance(dtype) : gradient_tolerance(dtype))) << i;
      }
    }
}

TEST_P(Modulate, ThreadsAgree) {
  const Case c{2, 500, 4, 30, 20, After::kClip};
  const Inputs in = Inputs::of(c);
  const at::Tensor g = at::randn_like(in.tensors[0]);
  const auto with = [&](int threads) {
    ScopedThreads scope(threads);
    return run(by_operator, c, in, g, at::kFloat, at::kFloat);
  };
  const auto one = with(1), two = with(2), three = with(3);
  EXPECT_TRUE(at::equal(one[0], two[0]) && at::equal(one[0], three[0]));
  for (size_t i = 1; i < one.size(); ++i) {
    EXPECT_TRUE(close(two[i], one[i], kFloat32Gradient));
    EXPECT_TRUE(close(three[i], one[i], kFloat32Gradient));
  }
  EXPECT_TRUE(at::equal(with(2)[2], two[2])) << "a second run differs";
}

TEST_P(Modulate, StridedAndEmptyInputsGiveTheSame) {
  const at::Tensor x = at::randn({2, 30, 3, 8}), hidden = at::randn({2, 30, 5}), weight = at::randn({5, 24});
  const at::Tensor expected = modulate(x, {hidden, weight});
  const at::Tensor wide = at::cat({x, x}, 3).slice(3, 0, 8),
                   every_second = at::stack({x, x}, -1).flatten(-2).slice(-1, 0, {}, 2);
  const at::Tensor columns = at::cat({weight, weight}, 1).slice(1, 24),
                   turned = hidden.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(at::equal(modulate(wide, {turned, columns}), expected));
  EXPECT_TRUE(at::equal(modulate(every_second, {hidden, weight.t().contiguous().t()}), expected));
  for (const at::Tensor& none : {x.slice(0, 0, 0), x.slice(1, 0, 0)}) {
    const at::Tensor leaf = none.detach().requires_grad_(), w = weight.detach().requires_grad_();
    const at::Tensor y = modulate(leaf, {at::empty({none.size(0), none.size(1), 5}), w});
    y.sum().backward();
    EXPECT_EQ(y.sizes(), none.sizes());
    EXPECT_TRUE(at::equal(w.grad(), at::zeros_like(w)));
  }
}

TEST_P(Modulate, NaNReachesItsOwnOutputsAlone) {
  at::Tensor x = at::randn({1, 3, 1, 8});
  x[0][1][0][2] = NAN;
  const Rotation rotation = rotation_of(at::arange(3), 8);
  for (const auto floor : {std::optional<double>(), std::optional<double>(0.1)}) {
    const at::Tensor y = modulate(x, {}, {rotation, floor, {}}).isnan();
    EXPECT_EQ(y.sum().item<int64_t>(), 2) << "its pair";
    EXPECT_TRUE(y[0][1][0].slice(0, 2, 4).all().item<bool>());
  }
  const at::Tensor y = modulate(x, {}, {{}, {}, at::ones({1, 8})}).isnan();
  EXPECT_EQ(y.sum().item<int64_t>(), 1);
}

TEST(ModulateDefinition, GradientsMatchFiniteDifferencesTwice) {
  at::manual_seed(4);
  for (const auto& [after, added] : {std::pair{After::kNothing, false},
                                     {After::kRotation, false},
                                     {After::kFeatures, false},
                                     {After::kClip, false},
                                     {After::kNothing, true},
                                     {After::kFeatures, true}}) {
    const Case c{1, 3, 2, 4, 2, after, false, added};
    const Inputs in = Inputs::of(c);
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& t : in.tensors)
      if (t.defined()) inputs.push_back(t.to(at::kDouble));
    EXPECT_TRUE(gradients_match(
        [&](const std::vector<at::Tensor>& at) -> std::vector<at::Tensor> {
          return {
              modulate(at[0], {at[1], at[2], c.added}, after_of(c, in.positions, at.size() > 3 ? at[3] : at::Tensor()))
                  .square()};
        },
        inputs, /*second_order=*/true));
  }
}

TEST(ModulateDefinition, ErrorsAreSentences) {
  const at::Tensor x = at::randn({2, 5, 3, 4}), hidden = at::randn({2, 5, 6}), weight = at::randn({6, 12});
  EXPECT_TRUE(fails_with("modulate: expected x of shape [B, T, H, K]", [&] { modulate(x[0], {}); }));
  EXPECT_TRUE(fails_with("modulate: expected hidden of shape [2, 5, *] to match x [2, 5, 3, 4], got [2, 4, 6]",
                         [&] { modulate(x, {hidden.slice(1, 1), weight}); }));
  EXPECT_TRUE(fails_with("modulate: expected weight of shape [6, 12] to match x [2, 5, 3, 4], got [6, 11]",
                         [&] { modulate(x, {hidden, weight.slice(1, 1)}); }));
  EXPECT_TRUE(fails_with("expected weight as Float", [&] { modulate(x, {hidden, weight.to(at::kDouble)}); }));
  EXPECT_TRUE(fails_with("modulate: expected limit of shape [3, 4] to match x [2, 5, 3, 4], got [4]",
                         [&] { modulate(x, {}, {{}, {}, at::ones({4})}); }));
  EXPECT_TRUE(fails_with("a floor belongs to a rotation", [&] { modulate(x, {}, {{}, 1.0, {}}); }));
  const Rotation rotation = rotation_of(at::arange(5), 4);
  EXPECT_TRUE(fails_with("got both", [&] { modulate(x, {}, {rotation, {}, at::ones({3, 4})}); }));
  EXPECT_TRUE(
      fails_with("modulate: expected frequency as Double [2] (radians for every pair of x), got Float [2]",
                 [&] { modulate(x, {}, {Rotation{rotation.positions, rotation.frequency.to(at::kFloat)}, {}, {}}); }));
}

}  // namespace
}  // namespace fem::testing
