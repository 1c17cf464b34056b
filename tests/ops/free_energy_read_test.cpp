#include "fem/ops/free_energy_read.h"

#include <torch/csrc/autograd/autograd.h>

#include "fem/ops/softmax_read.h"
#include "support/error_text.h"
#include "support/gradient_check.h"
#include "support/kernel_test.h"
#include "support/tolerance.h"

namespace fem::testing {
namespace {

class FreeEnergyReadTest : public ::testing::Test {
 protected:
  FreeEnergyReadTest() { at::manual_seed(7); }

 private:
  PoisonedMemory poison_;
};

struct Inputs {
  at::Tensor p, v, beta;
};

// Priors that are not normalised, some of whose tokens weigh nothing.
Inputs inputs_of(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t width) {
  const at::Tensor p = at::rand({batch, heads, queries, keys}, at::kDouble) * 3;
  return {p.masked_fill(at::rand(p.sizes()) < 0.2, 0), at::randn({batch, keys, heads, width}, at::kDouble),
          at::rand({heads, width}, at::kDouble) * 3 + 0.25};
}
FreeEnergyRead read_of(const Inputs& in, at::ScalarType dtype = at::kDouble) {
  return free_energy_read(in.p.to(dtype), in.v.to(dtype), in.beta.to(dtype));
}

// mu [B, Tq, H, V] under p.
at::Tensor mean_of(const Inputs& in) { return at::einsum("bhti,bihv->bthv", {in.p / in.p.sum(-1, true), in.v}); }
bool holds(const at::Tensor& condition) { return condition.all().item<bool>(); }

const std::vector<Inputs> awkward() {
  return {inputs_of(2, 1, 1, 2, 3),     inputs_of(2, 63, 63, 3, 7), inputs_of(1, 111, 111, 2, 20),
          inputs_of(1, 301, 301, 1, 5), inputs_of(3, 2, 301, 2, 9), inputs_of(2, 50, 20, 1, 1)};
}

TEST_F(FreeEnergyReadTest, OfSoftmaxReadsOwnPriorItIsItsFreeEnergy) {
  for (const bool causal : {true, false})
    for (const int64_t tokens : {1, 63, 111, 301}) {
      const at::Tensor query = at::randn({2, tokens, 3, 8}, at::kDouble), key = at::randn_like(query);
      const Inputs in = inputs_of(2, tokens, tokens, 3, 5);
      at::Tensor scores = at::einsum("bthk,bihk->bhti", {query, key}) / std::sqrt(8.0);
      if (causal) scores = scores.masked_fill(at::ones({tokens, tokens}, at::kBool).triu(1), -INFINITY);
      const at::Tensor p = at::softmax(scores, -1);
      const SoftmaxRead expected = softmax_read_definition(query, key, in.v, in.beta, {.causal = causal});
      EXPECT_TRUE(close(free_energy_read(p, in.v, in.beta).free_energy, expected.free_energy, kFloat64));
      // The kernels', in the same dtypes.
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        const auto low = [&](const at::Tensor& x) { return x.to(dtype); };
        const SoftmaxRead kernel = softmax_read(low(query), low(key), low(in.v), low(in.beta), {.causal = causal});
        const FreeEnergyRead actual = free_energy_read(low(p), low(in.v), low(in.beta));
        EXPECT_EQ(actual.free_energy.scalar_type(), dtype);
        EXPECT_EQ(actual.posterior.scalar_type(), dtype);
        const double magnitude = in.v.abs().max().item<double>();
        // In bfloat16 both round their inputs, each to other numbers.
        const Tolerance tolerance = dtype == at::kFloat ? kFloat32 : kBfloat16Gradient;
        EXPECT_TRUE(close(actual.free_energy, kernel.free_energy, tolerance, magnitude)) << dtype << " T" << tokens;
      }
    }
}

TEST_F(FreeEnergyReadTest, LowerPrecisionsMatchFloat64) {
  for (const Inputs& in : awkward())
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const Inputs rounded{in.p.to(dtype).to(at::kDouble), in.v.to(dtype).to(at::kDouble),
                           in.beta.to(dtype).to(at::kDouble)};
      const FreeEnergyRead expected = read_of(rounded), actual = read_of(in, dtype);
      const double magnitude = in.v.abs().max().item<double>();
      EXPECT_TRUE(close(actual.free_energy, expected.free_energy, forward_tolerance(dtype), magnitude));
      EXPECT_TRUE(close(actual.posterior, expected.posterior, forward_tolerance(dtype), magnitude));
    }
}

TEST_F(FreeEnergyReadTest, IsWhatTheFormulasSay) {
  for (const Inputs& in : awkward()) {
    const at::Tensor p = in.p / in.p.sum(-1, true).clamp_min(1e-300);
    // q_tj(i), [B, Tq, Tk, H, V]
    const at::Tensor tilted = p.permute({0, 2, 3, 1}).unsqueeze(-1) * (in.beta * in.v).exp().unsqueeze(1);
    const at::Tensor z = tilted.sum(2), empty = z == 0;
    const at::Tensor posterior = (tilted * in.v.unsqueeze(1)).sum(2) / z.masked_fill(empty, 1);
    const FreeEnergyRead read = read_of(in);
    EXPECT_TRUE(close(read.free_energy, z.masked_fill(empty, 1).log() / in.beta, kFloat64));
    EXPECT_TRUE(close(read.posterior, posterior, kFloat64));
  }
}

// mu <= F <= posterior <= max v of what has weight, and F grows with beta.
TEST_F(FreeEnergyReadTest, LiesBetweenTheMeanAndTheHighestValue) {
  for (const Inputs& drawn : {inputs_of(2, 63, 63, 3, 7), inputs_of(3, 2, 301, 2, 9)}) {
    const at::Tensor mean = mean_of(drawn);
    const at::Tensor weighs = drawn.p.permute({0, 2, 3, 1}).unsqueeze(-1) > 0;  // [B, Tq, Tk, H, 1]
    const at::Tensor highest = at::where(weighs, drawn.v.unsqueeze(1), -INFINITY).amax(2);
    at::Tensor before = mean, tilted_before = mean;
    for (const double factor : {0.01, 0.3, 1.0, 4.0, 50.0}) {
      const FreeEnergyRead read = read_of({drawn.p, drawn.v, drawn.beta * factor});
      EXPECT_TRUE(holds(read.free_energy >= before - kSlack)) << factor;
      EXPECT_TRUE(holds(read.posterior >= tilted_before - kSlack)) << factor;
      EXPECT_TRUE(holds(read.posterior >= read.free_energy - kSlack)) << factor;
      EXPECT_TRUE(holds(read.posterior <= highest + kSlack)) << factor;
      EXPECT_FALSE(holds(read.free_energy <= before + kSlack)) << factor << " changes nothing";
      before = read.free_energy, tilted_before = read.posterior;
    }
  }
}

// dF/dv are the weights of the posterior: positive, of sum 1, and the mean under them is what is returned.
TEST_F(FreeEnergyReadTest, ThePosteriorIsTheMeanUnderTheGradientByTheValues) {
  const Inputs in = inputs_of(2, 1, 40, 3, 5);
  const at::Tensor v = in.v.detach().clone().requires_grad_();
  const FreeEnergyRead read = free_energy_read(in.p, v, in.beta);
  const at::Tensor weights = torch::autograd::grad({read.free_energy.sum()}, {v})[0];  // of one query: its own
  EXPECT_TRUE(holds(weights >= 0));
  EXPECT_TRUE(close(weights.sum(1, true), at::ones({2, 1, 3, 5}), kFloat64));
  EXPECT_TRUE(close(read.posterior, (weights * in.v).sum(1, true), kFloat64));
}

// The scale of a row is nobody's business, and the gradient by it is 0.
TEST_F(FreeEnergyReadTest, RowsAreNormalised) {
  const Inputs in = inputs_of(2, 20, 30, 2, 4);
  const at::Tensor scale = at::rand({2, 2, 20, 1}, at::kDouble) * 100 + 0.01, p = in.p.clone().requires_grad_();
  const FreeEnergyRead read = free_energy_read(p, in.v, in.beta), scaled = read_of({in.p * scale, in.v, in.beta});
  EXPECT_TRUE(close(scaled.free_energy, read.free_energy, kFloat64));
  EXPECT_TRUE(close(scaled.posterior, read.posterior, kFloat64));
  const at::Tensor dp = torch::autograd::grad({read.free_energy.sum() + read.posterior.sum()}, {p})[0];
  EXPECT_TRUE(vanishes((dp * in.p).sum(-1), kFloat64, (dp * in.p).abs().sum(-1).max().item<double>()));
}

TEST_F(FreeEnergyReadTest, RowsOfZerosReadZeroWithZeroGradients) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Inputs in = inputs_of(2, 5, 9, 2, 3);
    at::Tensor p = in.p.to(dtype);
    p.select(0, 1).zero_();
    p.select(2, 3).zero_();
    const at::Tensor v = in.v.to(dtype).requires_grad_(), beta = in.beta.to(dtype).requires_grad_();
    p.requires_grad_();
    const FreeEnergyRead read = free_energy_read(p, v, beta);
    for (const at::Tensor& part : {read.free_energy, read.posterior}) {
      EXPECT_FALSE(part.select(0, 1).ne(0).any().item<bool>());
      EXPECT_FALSE(part.select(1, 3).ne(0).any().item<bool>());
      EXPECT_TRUE(holds(part.select(0, 0).select(0, 0).ne(0)));
    }
    const auto d = torch::autograd::grad({read.free_energy.sum() + read.posterior.sum()}, {p, v, beta});
    EXPECT_FALSE(d[0].select(0, 1).ne(0).any().item<bool>());
    EXPECT_FALSE(d[0].select(2, 3).ne(0).any().item<bool>());
    EXPECT_FALSE(d[1].select(0, 1).ne(0).any().item<bool>());
    for (const at::Tensor& gradient : d) {
      EXPECT_TRUE(gradient.isfinite().all().item<bool>());
      EXPECT_TRUE(gradient.ne(0).any().item<bool>());
    }
  }
  const FreeEnergyRead nothing = read_of(inputs_of(2, 3, 0, 2, 4));
  EXPECT_TRUE(at::equal(nothing.free_energy, at::zeros({2, 3, 2, 4}, at::kDouble)));
  EXPECT_TRUE(at::equal(nothing.posterior, at::zeros({2, 3, 2, 4}, at::kDouble)));
}

// |beta v| of 10^4, far beyond exp's range: the highest value is read, but for log(p) / beta.
TEST_F(FreeEnergyReadTest, HugeExponentsStayFiniteAndExact) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const double sign : {1.0, -1.0}) {
      Inputs in = inputs_of(2, 30, 50, 2, 4);
      in.p = in.p + 0.1;
      in.v = in.v + 100 * sign;
      in.beta = in.beta * 100;
      const at::Tensor p = in.p.to(dtype).requires_grad_(), v = in.v.to(dtype).requires_grad_(),
                       beta = in.beta.to(dtype).requires_grad_();
      const FreeEnergyRead read = free_energy_read(p, v, beta);
      const at::Tensor log_p = (in.p / in.p.sum(-1, true)).log().permute({0, 2, 3, 1}).unsqueeze(-1);
      const at::Tensor expected = at::logsumexp(log_p + (in.beta * in.v).unsqueeze(1), 2) / in.beta;
      EXPECT_TRUE(close(read.free_energy, expected, forward_tolerance(dtype)));
      EXPECT_TRUE(read.posterior.isfinite().all().item<bool>());
      for (const at::Tensor& d : torch::autograd::grad({read.free_energy.sum()}, {p, v, beta}))
        EXPECT_TRUE(d.isfinite().all().item<bool>());
    }
}

TEST_F(FreeEnergyReadTest, GradientsMatchFiniteDifferencesTwice) {
  const Inputs in = inputs_of(2, 3, 4, 2, 2);
  const auto read = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    const FreeEnergyRead out = free_energy_read(x[0], x[1], x[2]);
    return {out.free_energy, out.posterior};
  };
  EXPECT_TRUE(gradients_match(read, {in.p + 0.2, in.v, in.beta}, /*second_order=*/true));
}

TEST_F(FreeEnergyReadTest, StridedInputsGiveTheSame) {
  const Inputs in = inputs_of(2, 20, 30, 3, 4);
  const FreeEnergyRead expected = read_of(in);
  const FreeEnergyRead actual =
      free_energy_read(in.p.transpose(1, 2).contiguous().transpose(1, 2),
                       in.v.transpose(1, 3).contiguous().transpose(1, 3), in.beta.t().contiguous().t());
  EXPECT_TRUE(close(actual.free_energy, expected.free_energy, kFloat64));
  EXPECT_TRUE(close(actual.posterior, expected.posterior, kFloat64));
}

TEST(FreeEnergyReadErrors, SayWhatWasExpectedAndWhatCame) {
  const at::Tensor p = at::rand({2, 3, 5, 7}), v = at::randn({2, 7, 3, 4}), beta = at::ones({3, 4});
  const auto expect = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const char* text) {
    EXPECT_TRUE(fails_with(text, [&] { free_energy_read(a, b, c); }));
  };
  expect(p[0], v, beta, "free_energy_read: expected p of shape [B, H, Tq, Tk], got [3, 5, 7]");
  expect(p, v.slice(1, 1), beta,
         "free_energy_read: expected v of shape [2, 7, 3, *] to match p [2, 3, 5, 7], got [2, 6, 3, 4]");
  expect(p, v, beta.slice(1, 1), "free_energy_read: expected beta of shape [3, 4] to match v [2, 7, 3, 4], got [3, 3]");
  expect(p, v.to(at::kDouble), beta, "free_energy_read: expected v as Float like p, got Double");
  expect(p, v.to(at::kMeta), beta, "free_energy_read: expected v on cpu like p, got it on meta");
  expect(p.to(at::kHalf), v.to(at::kHalf), beta.to(at::kHalf),
         "free_energy_read: expected float32, bfloat16 or float64, got Half (float16 cannot hold exp(beta v)");
}

}  // namespace
}  // namespace fem::testing
