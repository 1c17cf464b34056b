#include "cpu/vec_kernel.h"

#include "cpu/vec.h"

namespace fem::vec_test {
namespace {

using namespace fem::cpu;

template <typename Function>
void apply(const float* x, float* y, int64_t n, Function&& function) {
  for_vectors(n, [&](int64_t i, auto&& get, auto&& put) { put(y + i, function(get(x + i))); });
}

}  // namespace

namespace FEM_ISA {

void apply_exp(const float* x, float* y, int64_t n) {
  apply(x, y, n, [](Floats v) { return exp(v); });
}
void apply_guarded_exp(const float* x, float* y, int64_t n) {
  apply(x, y, n, [](Floats v) { return exp<46>(v); });
}
void apply_log(const float* x, float* y, int64_t n) {
  apply(x, y, n, [](Floats v) { return log(v); });
}
void apply_sigmoid(const float* x, float* y, int64_t n) {
  apply(x, y, n, [](Floats v) { return sigmoid(v); });
}
void apply_softplus(const float* x, float* y, int64_t n) {
  apply(x, y, n, [](Floats v) { return softplus(v); });
}
void to_bfloat16(const float* x, uint16_t* y, int64_t n) {
  for_vectors(n, [&](int64_t i, auto&& get, auto&& put) { put(reinterpret_cast<Bfloat16*>(y) + i, get(x + i)); });
}

}  // namespace FEM_ISA
}  // namespace fem::vec_test
