// Both gates of one row at a time. With raw = softplus(b) + eps, n = max(|raw|, floor), u the mixed read:
//   out = s raw u / n, s = sqrt(V);   du = s raw / n dout;   draw = s / n (u dout - raw (raw . u dout) / n^2)
#include <cmath>

#include "cpu/gate.h"
#include "cpu/vec.h"
#include "ops/gated_read/cpu/kernels.h"

namespace fem::gate_kernels {
namespace {

using namespace fem::cpu;

template <typename Scalar>
const Scalar* row(const void* data, const Gates& a, int64_t r) {
  return static_cast<const Scalar*>(data) + r * a.width;
}
template <typename Scalar>
Scalar* row(void* data, const Gates& a, int64_t r) {
  return static_cast<Scalar*>(data) + r * a.width;
}

// (1 - lambda) mean + lambda F, and lambda.
struct Mixed {
  Floats value, lambda, gap;
};
template <typename Scalar, typename Get>
Mixed mix(const Gates& a, int64_t r, int64_t c, Get&& get) {
  const Floats mean = get(row<Scalar>(a.mean, a, r) + c);
  if (!a.temperature_logit) return {mean, Floats{}, Floats{}};
  const Floats lambda = sigmoid(get(row<Scalar>(a.temperature_logit, a, r) + c));
  const Floats gap = get(row<Scalar>(a.free_energy, a, r) + c) - mean;
  return {mean + lambda * gap, lambda, gap};
}

template <typename Scalar>
float raw_gate(const Gates& a, int64_t r, float* raw) {
  return cpu::raw_gate(row<Scalar>(a.gate_logit, a, r), a.width, a.eps, a.norm_floor, raw);
}

template <typename Scalar>
void gate_rows(const GatesForward& a, int64_t begin, int64_t end, float* raw) {
  const float scale = std::sqrt(static_cast<float>(a.width));
  for (int64_t r = begin; r < end; ++r) {
    const float factor = a.gate_logit ? scale * raw_gate<Scalar>(a, r, raw) : 1;
    for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
      const Floats mixed = mix<Scalar>(a, r, c, get).value;
      put(row<Scalar>(a.out, a, r) + c, a.gate_logit ? mixed * get(raw + c) * factor : mixed);
    });
  }
}

template <typename Scalar>
void gate_rows_backward(const GatesBackward& a, int64_t begin, int64_t end, float* raw) {
  const float scale = std::sqrt(static_cast<float>(a.width));
  for (int64_t r = begin; r < end; ++r) {
    const Scalar* grad = row<Scalar>(a.grad, a, r);
    float inverse = 1, along = 0;
    if (a.gate_logit) {
      inverse = raw_gate<Scalar>(a, r, raw);
      Floats total{};
      for_vectors(a.width, [&](int64_t c, auto&& get, auto&&) {
        total += get(raw + c) * mix<Scalar>(a, r, c, get).value * get(grad + c);
      });
      // At the floor the norm is a constant.
      along = inverse * a.norm_floor < 1 ? sum(total) * inverse * inverse : 0;
    }
    for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
      const Mixed m = mix<Scalar>(a, r, c, get);
      Floats du = get(grad + c);
      if (a.gate_logit) {
        const Floats draw = (m.value * du - get(raw + c) * along) * (scale * inverse);
        put(row<Scalar>(a.grad_gate, a, r) + c, draw * sigmoid(get(row<Scalar>(a.gate_logit, a, r) + c)));
        du = du * get(raw + c) * (scale * inverse);
      }
      put(row<Scalar>(a.grad_mean, a, r) + c, du * (1.0f - m.lambda));
      if (!a.temperature_logit) return;
      put(row<Scalar>(a.grad_free_energy, a, r) + c, du * m.lambda);
      put(row<Scalar>(a.grad_temperature, a, r) + c, du * m.gap * m.lambda * (1.0f - m.lambda));
    });
  }
}

}  // namespace

namespace FEM_ISA {

void gates(const GatesForward& a, int64_t begin, int64_t end, float* scratch) {
  a.bfloat16 ? gate_rows<Bfloat16>(a, begin, end, scratch) : gate_rows<float>(a, begin, end, scratch);
}

void gates_backward(const GatesBackward& a, int64_t begin, int64_t end, float* scratch) {
  a.bfloat16 ? gate_rows_backward<Bfloat16>(a, begin, end, scratch) : gate_rows_backward<float>(a, begin, end, scratch);
}

}  // namespace FEM_ISA
}  // namespace fem::gate_kernels
