// One row at a time. With r = 1 / sqrt(mean(x^2) + eps), n = r x and g = scale dy:
//   y = scale n      dx = r (g - n mean(g n))      dscale = sum of dy n over rows
#include <cmath>

#include "cpu/vec.h"
#include "ops/rms_norm/cpu/kernels.h"

namespace fem::norm_kernels {
namespace {

using namespace fem::cpu;

template <typename Scalar>
float inverse_root(const Norm& a, const Scalar* x) {
  Floats square{};
  for_vectors(a.width, [&](int64_t c, auto&& get, auto&&) { square += get(x + c) * get(x + c); });
  return 1 / std::sqrt(sum(square) / a.width + a.eps);
}

template <typename Scalar>
void norm_rows(const NormForward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const Scalar* x = at<Scalar>(a.x, r * a.width);
    Scalar* y = at<Scalar>(a.y, r * a.width);
    const float inverse = inverse_root(a, x);
    for_vectors(a.width,
                [&](int64_t c, auto&& get, auto&& put) { put(y + c, get(x + c) * inverse * get(a.scale + c)); });
  }
}

template <typename Scalar>
void norm_rows_backward(const NormBackward& a, float* grad_scale, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const Scalar* x = at<Scalar>(a.x, r * a.width);
    const Scalar* grad = at<Scalar>(a.grad, r * a.width);
    Scalar* dx = at<Scalar>(a.grad_x, r * a.width);
    const float inverse = inverse_root(a, x);
    Floats along{};
    for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
      const Floats dscale = get(grad + c) * get(x + c) * inverse;
      along += dscale * get(a.scale + c);
      put(grad_scale + c, get(grad_scale + c) + dscale);
    });
    const float mean = sum(along) / a.width;
    for_vectors(a.width, [&](int64_t c, auto&& get, auto&& put) {
      put(dx + c, (get(grad + c) * get(a.scale + c) - get(x + c) * (inverse * mean)) * inverse);
    });
  }
}

}  // namespace

namespace FEM_ISA {

void norm(const NormForward& a, int64_t begin, int64_t end) {
  a.bfloat16 ? norm_rows<Bfloat16>(a, begin, end) : norm_rows<float>(a, begin, end);
}

void norm_backward(const NormBackward& a, float* grad_scale, int64_t begin, int64_t end) {
  a.bfloat16 ? norm_rows_backward<Bfloat16>(a, grad_scale, begin, end)
             : norm_rows_backward<float>(a, grad_scale, begin, end);
}

}  // namespace FEM_ISA
}  // namespace fem::norm_kernels
