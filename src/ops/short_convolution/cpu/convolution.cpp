// Vectors of channels at a time, from token to token. Backward walks from the last token to the first: with g_t the
// gradient before silu and tap j the weight of the token j places back,
//   dx_t = sum_j tap_j g_{t+j}     dtap_j = sum_t g_t x_{t-j}
#include "cpu/channels.h"
#include "cpu/silu.h"
#include "cpu/vec.h"
#include "ops/short_convolution/cpu/kernels.h"

namespace fem::short_convolution_kernels {
namespace {

using namespace fem::cpu;

template <typename Scalar, int kWidth>
void convolve(const ConvolutionForward& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t batch, int64_t channel, auto&& get, auto&& put) {
    Floats weight[kWidth], x[kWidth] = {};  // in the order of the tokens
    for (int j = 0; j < kWidth; ++j) weight[j] = get(a.weight + j * a.channels + channel);
    const auto* initial = static_cast<const Scalar*>(a.initial);
    if (initial)
      for (int j = 1; j < kWidth; ++j) x[j] = get(initial + (batch * (kWidth - 1) + j - 1) * a.channels + channel);
    for (int64_t t = 0; t < a.tokens; ++t) {
      const int64_t token = batch * a.tokens + t;
      const bool forgets = a.restart && a.restart[token];
      for (int j = 0; j + 1 < kWidth; ++j) x[j] = forgets ? Floats{} : x[j + 1];
      x[kWidth - 1] = get(static_cast<const Scalar*>(a.x) + token * a.channels + channel);
      Floats y{};
      for (int j = 0; j < kWidth; ++j) y += weight[j] * x[j];
      put(static_cast<Scalar*>(a.y) + token * a.channels + channel, a.silu ? silu(y).value : y);
    }
  });
}

// One row of the batch and one vector of channels: gradients of x and initial, and what the row adds to those of taps.
template <typename Scalar, int kWidth, typename Get, typename Put>
void convolve_row_backward(const ConvolutionBackward& a, int64_t batch, int64_t channel, const Floats* tap,
                           Floats* grad_tap, Get&& get, Put&& put) {
  const auto before_first = [&](auto* initial, int64_t t) {  // t < 0
    return initial + (batch * (kWidth - 1) + kWidth - 1 + t) * a.channels + channel;
  };
  const auto at = [&](auto* rows, int64_t t) { return rows + (batch * a.tokens + t) * a.channels + channel; };
  const auto restarts = [&](int64_t t) { return a.restart && a.restart[batch * a.tokens + t]; };
  const auto* initial = static_cast<const Scalar*>(a.initial);
  Floats g[kWidth] = {};  // of this token and those after it
  const auto grad_x = [&] {
    Floats sum{};
    for (int j = 0; j < kWidth; ++j) sum += tap[j] * g[j];
    return sum;
  };
  for (int64_t t = a.tokens - 1; t >= 0; --t) {
    Floats x[kWidth] = {}, y{};
    x[0] = get(at(static_cast<const Scalar*>(a.x), t));
    for (int j = 1; j < kWidth && !(t >= j - 1 && restarts(t - j + 1)); ++j) {
      if (t >= j)
        x[j] = get(at(static_cast<const Scalar*>(a.x), t - j));
      else if (initial)
        x[j] = get(before_first(initial, t - j));
    }
    g[0] = get(at(static_cast<const Scalar*>(a.grad), t));
    if (a.silu) {
      for (int j = 0; j < kWidth; ++j) y += tap[j] * x[j];
      g[0] *= silu(y).slope;
    }
    for (int j = 0; j < kWidth; ++j) grad_tap[j] += g[0] * x[j];
    put(at(static_cast<Scalar*>(a.grad_x), t), grad_x());
    for (int j = kWidth - 1; j > 0; --j) g[j] = restarts(t) ? Floats{} : g[j - 1];
  }
  if (!a.grad_initial) return;
  for (int64_t t = -1; t > -kWidth; --t) {
    g[0] = Floats{};
    put(before_first(static_cast<Scalar*>(a.grad_initial), t), grad_x());
    for (int j = kWidth - 1; j > 0; --j) g[j] = g[j - 1];
  }
}

template <typename Scalar, int kWidth>
void convolve_backward(const ConvolutionBackward& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t, int64_t channel, auto&& get, auto&& put) {
    Floats tap[kWidth], total[kWidth] = {};
    for (int j = 0; j < kWidth; ++j) tap[j] = get(a.weight + (kWidth - 1 - j) * a.channels + channel);
    for (int64_t batch = 0; batch < a.batch; ++batch) {
      Floats row[kWidth] = {};
      convolve_row_backward<Scalar, kWidth>(a, batch, channel, tap, row, get, put);
      for (int j = 0; j < kWidth; ++j) total[j] += row[j];
    }
    for (int j = 0; j < kWidth; ++j) put(a.grad_weight + (kWidth - 1 - j) * a.channels + channel, total[j]);
  });
}

template <typename Scalar>
auto forward_of(int64_t width) {
  return width == 2 ? convolve<Scalar, 2> : width == 3 ? convolve<Scalar, 3> : convolve<Scalar, 4>;
}

template <typename Scalar>
auto backward_of(int64_t width) {
  return width == 2   ? convolve_backward<Scalar, 2>
         : width == 3 ? convolve_backward<Scalar, 3>
                      : convolve_backward<Scalar, 4>;
}

}  // namespace

namespace FEM_ISA {

void forward(const ConvolutionForward& a, int64_t begin, int64_t end) {
  (a.bfloat16 ? forward_of<Bfloat16>(a.width) : forward_of<float>(a.width))(a, begin, end);
}

void backward(const ConvolutionBackward& a, int64_t begin, int64_t end) {
  (a.bfloat16 ? backward_of<Bfloat16>(a.width) : backward_of<float>(a.width))(a, begin, end);
}

}  // namespace FEM_ISA
}  // namespace fem::short_convolution_kernels
