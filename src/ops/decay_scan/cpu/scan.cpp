// The recurrence, vectors of channels at a time, and its gradient from the last token to the first:
//   dh_t = grad_t + a_{t+1} dh_{t+1}     du_t = dh_t     dlog_decay_t = dh_t a_t h_{t-1}     dinitial = a_0 dh_0
#include "cpu/channels.h"
#include "cpu/vec.h"
#include "ops/decay_scan/cpu/kernels.h"

namespace fem::decay_kernels {
namespace {

using namespace fem::cpu;

template <typename Scalar>
void scan_items(const Scan& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t batch, int64_t channel, auto&& get, auto&& put) {
    int64_t at = batch * a.tokens * a.channels + channel;
    const auto* initial = static_cast<const Scalar*>(a.initial);
    Floats h = initial ? get(initial + batch * a.channels + channel) : Floats{};
    for (int64_t t = 0; t < a.tokens; ++t, at += a.channels) {
      h = decayed(h, get(static_cast<const Scalar*>(a.log_decay) + at)) + get(static_cast<const Scalar*>(a.u) + at);
      put(static_cast<Scalar*>(a.h) + at, h);
    }
  });
}

template <typename Scalar>
void scan_items_backward(const ScanBackward& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t batch, int64_t channel, auto&& get, auto&& put) {
    const int64_t start = batch * a.tokens * a.channels + channel;
    const int64_t side = batch * a.channels + channel;
    const auto* initial = static_cast<const Scalar*>(a.initial);
    Floats carried{};  // a_{t+1} dh_{t+1}
    for (int64_t t = a.tokens - 1; t >= 0; --t) {
      const int64_t at = start + t * a.channels;
      const Floats dh = get(static_cast<const Scalar*>(a.grad) + at) + carried;
      Floats previous{};
      if (t > 0)
        previous = get(static_cast<const Scalar*>(a.h) + at - a.channels);
      else if (initial)
        previous = get(initial + side);
      carried = decayed(dh, get(static_cast<const Scalar*>(a.log_decay) + at));
      put(static_cast<Scalar*>(a.grad_u) + at, dh);
      put(static_cast<Scalar*>(a.grad_log_decay) + at, carried * previous);
    }
    if (initial) put(static_cast<Scalar*>(a.grad_initial) + side, carried);
  });
}

}  // namespace

namespace FEM_ISA {

void scan(const Scan& a, int64_t begin, int64_t end) {
  a.bfloat16 ? scan_items<Bfloat16>(a, begin, end) : scan_items<float>(a, begin, end);
}

void scan_backward(const ScanBackward& a, int64_t begin, int64_t end) {
  a.bfloat16 ? scan_items_backward<Bfloat16>(a, begin, end) : scan_items_backward<float>(a, begin, end);
}

}  // namespace FEM_ISA
}  // namespace fem::decay_kernels
