#include "bench/cpu/peak.h"

#include "cpu/vec.h"

namespace fem::peak_kernels {
namespace {

using namespace fem::cpu;

// Two units with a latency of four or five cycles need ten; with the factor they fit into sixteen registers.
constexpr int kChains = 12;
constexpr int kStreams = 8;  // vectors a turn: additions wait for memory, never for each other

template <int kCount>
float total(const Floats (&x)[kCount]) {
  float all = 0;
  for (int i = 0; i < kCount; ++i) all += sum(x[i]);
  return all;
}

}  // namespace

namespace FEM_ISA {

double multiply_adds(int64_t rounds, float factor, float* sum) {
  Floats x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = splat(static_cast<float>(i));  // equal chains would be computed once
  const Floats f = splat(factor);
  for (int64_t round = 0; round < rounds; ++round)
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * f + f;
  *sum = total(x);
  return 2.0 * kLanes * kChains * static_cast<double>(rounds);
}

float sum_of(const float* data, int64_t blocks) {
  Floats x[kStreams] = {};
  for (const float* end = data + blocks * kBlock; data < end; data += kStreams * kLanes)
    for (int i = 0; i < kStreams; ++i) x[i] += load(data + i * kLanes);
  return total(x);
}

}  // namespace FEM_ISA
}  // namespace fem::peak_kernels
