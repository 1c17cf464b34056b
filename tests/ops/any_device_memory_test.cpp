// Memory of the paths for devices without kernels of their own: what they allocate at most, counted on the CPU.
#include "bench/memory.h"
#include "ops/channel_read/channel_read.h"
#include "ops/linear_read/linear_read.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/ssm_read/ssm_read.h"
#include "support/any_device.h"

namespace fem::testing {
namespace {

using Measure = std::function<int64_t(int64_t tokens)>;

constexpr int64_t kTokens = 4096;
// Twice the tokens are twice the memory, but for what does not depend on them.
constexpr double kLinear = 2.1;

int64_t peak_of(const std::function<void()>& work) {
  const at::NoGradGuard no_grad;
  return bench::memory_of(work).peak_bytes;
}

// too_much: bytes of 2 kTokens tokens.
void expect_linear(const Measure& peak, int64_t too_much) {
  const int64_t one = peak(kTokens), two = peak(2 * kTokens);
  EXPECT_LT(static_cast<double>(two), kLinear * static_cast<double>(one)) << one << " bytes, then " << two;
  EXPECT_LT(two, too_much);
}

int64_t softmax_peak(int64_t tokens, const SoftmaxReadOptions& o) {
  const at::Tensor q = at::randn({1, tokens, 1, 16}), k = at::randn_like(q), v = at::randn({1, tokens, 1, 8});
  const SoftmaxReadOp::Inputs in{q,       k,        v,        at::ones({1, 8}), o.bias,      o.slopes,
                                 o.scale, o.causal, o.window, o.key_mask,       o.cu_seqlens};
  return peak_of([&] {
    SoftmaxReadOp::gradient_elsewhere(all_gradients<SoftmaxReadOp>({v, v, {}}, in, SoftmaxReadOp::elsewhere(in)));
  });
}

TEST(AnyDeviceMemory, SoftmaxNeverHoldsAllScores) {
  const int64_t scores = 4 * kTokens * kTokens * 4;  // bytes of 2 kTokens x 2 kTokens
  const Measure causal = [](int64_t tokens) { return softmax_peak(tokens, {}); };
  const Measure encoder = [](int64_t tokens) { return softmax_peak(tokens, {.causal = false}); };
  const Measure masked = [](int64_t tokens) { return softmax_peak(tokens, {.key_mask = at::rand({1, tokens}) > 0.3}); };
  const Measure packed = [](int64_t tokens) {
    return softmax_peak(tokens, {.cu_seqlens = at::tensor({int64_t{0}, tokens / 3, tokens})});
  };
  const Measure window = [](int64_t tokens) { return softmax_peak(tokens, {.window = 64}); };
  for (const Measure& whole : {causal, encoder, packed, window}) expect_linear(whole, scores / 32);
  expect_linear(masked, scores / 8);
  const WithoutFusedAttention by_products;
  for (const Measure& in_blocks : {causal, encoder, masked, packed}) expect_linear(in_blocks, scores / 4);
  expect_linear(window, scores / 32);
}

// Forward, then backward with these gradients.
template <typename Scan>
int64_t scan_peak(const typename Scan::Inputs& in, const ScanReads& grads, int64_t portion_memory) {
  return peak_of([&] {
    Scan::elsewhere(in, portion_memory);
    Scan::gradient_elsewhere(all_gradients<Scan>(grads, in), portion_memory);
  });
}

TEST(AnyDeviceMemory, LinearNeverHoldsAStateForEveryToken) {
  const int64_t key = 64, width = 32, columns = 2 * width + 1;
  int64_t portion_memory = kPortionMemory;
  const Measure peak = [&](int64_t tokens) {
    const at::Tensor q = at::rand({1, tokens, 1, key}), v = at::randn({1, tokens, 1, width});
    return scan_peak<LinearScanOp>({q, q, v, at::ones({1, width}), -at::rand({1, tokens, 1}), {}, {}, {}, false},
                                   {v, v, {}, {}, {}}, portion_memory);
  };
  expect_linear(peak, 2 * kTokens * key * columns * 4 / 2);
  // In portions little but inputs, outputs and gradients is there at a time.
  const int64_t inputs_and_gradients = 2 * kTokens * (2 * key + width) * 2 * 4;
  portion_memory = 1 << 20;
  expect_linear(peak, 3 * inputs_and_gradients);
}

// In portions memory is that of a few tensors [T, V]; the ssm's definition takes 100 of them at R = 16.
TEST(AnyDeviceMemory, ChannelsAndSsmKeepAFewNumbersAToken) {
  const int64_t width = 8, rank = 16, tensor = 2 * kTokens * width * 4, portion_memory = 1 << 18;
  const Measure channels = [&](int64_t tokens) {
    const at::Tensor v = at::randn({1, tokens, 1, width});
    return scan_peak<ChannelScanOp>({v, at::ones({1, width}), at::randn_like(v), -at::rand_like(v), {}, {}, {}, false},
                                    {v, v, {}, {}, {}}, portion_memory);
  };
  const Measure ssm = [&](int64_t tokens) {
    const at::Tensor v = at::randn({1, tokens, 1, width}), b = at::rand({1, tokens, rank});
    const at::Tensor ones = at::ones({1, width}), a = -at::rand({1, width, rank});
    return scan_peak<SsmScanOp>({v, ones, at::rand_like(v), a, b, b, ones, {}, {}, {}, false, false},
                                {v, v, {}, {}, {}}, portion_memory);
  };
  expect_linear(channels, 16 * tensor);
  expect_linear(ssm, 16 * tensor);
}

}  // namespace
}  // namespace fem::testing
