// The recurrence over tokens, vectors of channels at a time, then norm and gate over channels, row by row.
// With a = exp(-softplus(d)) = 1 - sigmoid(d), n the normalised h, g the gate and dn = weight g dunits:
//   dh_t = dnorm_t + a_{t+1} dh_{t+1}     du_t = dh_t     dd_t = -dh_t h_{t-1} a_t sigmoid(d_t)     dinitial = a_0 dh_0
//   dnorm = (dn - mean(dn) - n mean(dn n)) / deviation
#include <cmath>

#include "cpu/channels.h"
#include "cpu/gate.h"
#include "cpu/vec.h"
#include "ops/gated_scan/cpu/kernels.h"

namespace fem::gated_scan_kernels {
namespace {

using namespace fem::cpu;

// How a token lets h pass. small is the lesser of a and 1 - a: a h = h - small h for a negative logit, else small h.
// Near a = 1 that rounds only what is lost; a itself, rounded, would repeat its error at every token.
struct Decay {
  Floats logit, small, slope;  // slope = a (1 - a)

  explicit Decay(Floats d) : logit(d) {
    const Floats e = exp(select(d < 0.0f, d, -d)), inverse = 1.0f / (1.0f + e);
    small = e * inverse;
    slope = small * inverse;
  }
  Floats of(Floats h) const { return select(logit < 0.0f, h - small * h, small * h); }
};

// The index of a token: its mark, and where its channels are.
struct Token {
  int64_t mark, channels;
};
Token token_at(const Scan& a, int64_t batch, int64_t channel, int64_t step) {
  const int64_t token = batch * a.tokens + (a.reverse ? a.tokens - 1 - step : step);
  return {token, token * a.channels + channel};
}
bool marked(const bool* marks, const Token& token) { return marks && marks[token.mark]; }
bool is_padding(const Scan& a, const Token& token) { return a.key_mask && !a.key_mask[token.mark]; }

template <typename Scalar>
void scan_items(const Scan& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t batch, int64_t channel, auto&& get, auto&& put) {
    Floats h = a.initial ? get(a.initial + batch * a.channels + channel) : Floats{};
    for (int64_t step = 0; step < a.tokens; ++step) {
      const Token token = token_at(a, batch, channel, step);
      const bool absent = is_padding(a, token);
      if (marked(a.restart, token))
        h = Floats{};
      else if (!absent)
        h = Decay(get(at<Scalar>(a.decay_logit, token.channels))).of(h);
      if (!absent) h += get(at<Scalar>(a.u, token.channels));
      put(a.h + token.channels, h);
    }
  });
}

template <typename Scalar>
void scan_items_backward(const ScanBackward& a, int64_t begin, int64_t end) {
  for_channel_vectors(a.channels, kChannels, begin, end, [&](int64_t batch, int64_t channel, auto&& get, auto&& put) {
    const int64_t side = batch * a.channels + channel;
    Floats carried{};  // a_{t+1} dh_{t+1}
    for (int64_t step = a.tokens - 1; step >= 0; --step) {
      const Token token = token_at(a, batch, channel, step);
      const bool absent = is_padding(a, token), restart = marked(a.restart, token);
      const Floats dh = get(at<Scalar>(a.grad_u, token.channels)) + carried;
      Floats ddecay{};
      if (restart) {
        carried = Floats{};
      } else if (absent) {
        carried = dh;
      } else {
        Floats previous{};
        if (step > 0)
          previous = get(a.h + token_at(a, batch, channel, step - 1).channels);
        else if (a.initial)
          previous = get(a.initial + side);
        const Decay decay(get(at<Scalar>(a.decay_logit, token.channels)));
        carried = decay.of(dh);
        ddecay = -dh * previous * decay.slope;
      }
      put(at<Scalar>(a.grad_u, token.channels), absent ? Floats{} : dh);
      put(at<Scalar>(a.grad_decay, token.channels), ddecay);
    }
    if (a.initial) put(a.grad_initial + side, carried);
  });
}

// The direction of the gate's logits of a row, of length 1, and its h normalised.
struct Row {
  float *direction, *normalised;
  float inverse_norm, inverse_deviation;
  bool at_floor;  // of the norm, which is then a constant

  template <typename Scalar>
  static Row of(const Scan& a, int64_t r, float* scratch, Scalar) {
    Row row{scratch, scratch + a.channels + kLanes};
    const float* h = a.h + r * a.channels;
    Floats total{}, square{};
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&&) { total += get(h + c); });
    const float mean = sum(total) / a.channels;
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      put(row.normalised + c, get(h + c) - mean);
      square += get(row.normalised + c) * get(row.normalised + c);
    });
    row.inverse_deviation = 1 / std::sqrt(sum(square) / a.channels + a.norm_eps);
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      put(row.normalised + c, get(row.normalised + c) * row.inverse_deviation);
    });
    row.inverse_norm =
        raw_gate(at<Scalar>(a.gate_logit, r * a.channels), a.channels, a.gate_eps, a.gate_floor, row.direction);
    row.at_floor = row.inverse_norm * a.gate_floor >= 1;
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      put(row.direction + c, get(row.direction + c) * row.inverse_norm);
    });
    return row;
  }
};

// The gate of a direction, and its derivative.
struct Gate {
  Floats value, slope;

  Gate(const Scan& a, Floats direction) {
    if (!a.silu) {
      slope = splat(std::sqrt(static_cast<float>(a.channels)));
      value = direction * slope;
    } else {
      const Floats open = sigmoid(direction);
      value = direction * open;
      slope = open * (1.0f + direction * (1.0f - open));
    }
  }
};

template <typename Get>
Floats affine(const Scan& a, const Row& row, int64_t c, Get&& get) {
  const Floats y = get(row.normalised + c) * get(a.weight + c);
  return a.bias ? y + get(a.bias + c) : y;
}

template <typename Scalar>
void form_units(const Scan& a, int64_t begin, int64_t end, float* scratch) {
  for (int64_t r = begin; r < end; ++r) {
    const Row row = Row::of(a, r, scratch, Scalar{});
    Scalar* units = at<Scalar>(a.units, r * a.channels);
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      put(units + c, affine(a, row, c, get) * Gate(a, get(row.direction + c)).value);
    });
  }
}

template <typename Scalar>
void form_units_backward(const ScanBackward& a, Sums sums, int64_t begin, int64_t end, float* scratch) {
  for (int64_t r = begin; r < end; ++r) {
    const Row row = Row::of(a, r, scratch, Scalar{});
    const Scalar *grad = at<Scalar>(a.grad_units, r * a.channels), *logit = at<Scalar>(a.gate_logit, r * a.channels);
    float* dn = row.normalised + a.channels + kLanes;
    Floats along{}, dn_total{}, dn_along_n{};
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      const Floats n = get(row.normalised + c), direction = get(row.direction + c), d = get(grad + c);
      const Gate gate(a, direction);
      const Floats dy = d * gate.value;
      along += direction * gate.slope * d * affine(a, row, c, get);
      put(sums.weight + c, get(sums.weight + c) + dy * n);
      if (a.bias) put(sums.bias + c, get(sums.bias + c) + dy);
      const Floats own = dy * get(a.weight + c);
      dn_total += own;
      dn_along_n += own * n;
      put(dn + c, own);
    });
    const float direction_along = row.at_floor ? 0 : sum(along);
    const float dn_mean = sum(dn_total) / a.channels, n_mean = sum(dn_along_n) / a.channels;
    for_vectors(a.channels, [&](int64_t c, auto&& get, auto&& put) {
      const Floats n = get(row.normalised + c);
      const Floats direction = get(row.direction + c);
      const Floats ddirection = Gate(a, direction).slope * get(grad + c) * affine(a, row, c, get);
      const Floats draw = (ddirection - direction * direction_along) * row.inverse_norm;
      put(at<Scalar>(a.grad_gate, r * a.channels) + c, draw * sigmoid(get(logit + c)));
      put(at<Scalar>(a.grad_u, r * a.channels) + c, (get(dn + c) - dn_mean - n * n_mean) * row.inverse_deviation);
    });
  }
}

}  // namespace

namespace FEM_ISA {

int64_t scratch_floats(const Scan& a) { return 3 * (a.channels + kLanes); }

void scan(const Scan& a, int64_t begin, int64_t end) {
  a.bfloat16 ? scan_items<Bfloat16>(a, begin, end) : scan_items<float>(a, begin, end);
}

void rows(const Scan& a, int64_t begin, int64_t end, float* scratch) {
  a.bfloat16 ? form_units<Bfloat16>(a, begin, end, scratch) : form_units<float>(a, begin, end, scratch);
}

void rows_backward(const ScanBackward& a, Sums sums, int64_t begin, int64_t end, float* scratch) {
  a.bfloat16 ? form_units_backward<Bfloat16>(a, sums, begin, end, scratch)
             : form_units_backward<float>(a, sums, begin, end, scratch);
}

void scan_backward(const ScanBackward& a, int64_t begin, int64_t end) {
  a.bfloat16 ? scan_items_backward<Bfloat16>(a, begin, end) : scan_items_backward<float>(a, begin, end);
}

}  // namespace FEM_ISA
}  // namespace fem::gated_scan_kernels
