// With s = sigmoid(gate):
//   out = gate s up     dup = grad gate s     dgate = grad up s (1 + gate (1 - s))
#include "cpu/silu.h"
#include "cpu/vec.h"
#include "ops/swiglu/cpu/kernels.h"

namespace fem::swiglu_kernels {
namespace {

using namespace fem::cpu;

// Calls body(offset, get, put) over the elements of blocks begin to end.
template <typename Body>
void for_elements(const Swiglu& a, int64_t begin, int64_t end, Body&& body) {
  const int64_t first = begin * kBlock, past = end * kBlock < a.elements ? end * kBlock : a.elements;
  for_vectors(past - first, [&](int64_t i, auto&& get, auto&& put) { body(first + i, get, put); });
}

template <typename Scalar>
void multiply(const SwigluForward& a, int64_t begin, int64_t end) {
  for_elements(a, begin, end, [&](int64_t i, auto&& get, auto&& put) {
    const Floats gate = get(at<Scalar>(a.gate, i));
    put(at<Scalar>(a.out, i), gate * sigmoid(gate) * get(at<Scalar>(a.up, i)));
  });
}

template <typename Scalar>
void multiply_backward(const SwigluBackward& a, int64_t begin, int64_t end) {
  for_elements(a, begin, end, [&](int64_t i, auto&& get, auto&& put) {
    const Floats gate = get(at<Scalar>(a.gate, i)), grad = get(at<Scalar>(a.grad, i));
    const Silu s = silu(gate);
    put(at<Scalar>(a.grad_gate, i), grad * get(at<Scalar>(a.up, i)) * s.slope);
    put(at<Scalar>(a.grad_up, i), grad * s.value);
  });
}

}  // namespace

namespace FEM_ISA {

void forward(const SwigluForward& a, int64_t begin, int64_t end) {
  a.bfloat16 ? multiply<Bfloat16>(a, begin, end) : multiply<float>(a, begin, end);
}

void backward(const SwigluBackward& a, int64_t begin, int64_t end) {
  a.bfloat16 ? multiply_backward<Bfloat16>(a, begin, end) : multiply_backward<float>(a, begin, end);
}

}  // namespace FEM_ISA
}  // namespace fem::swiglu_kernels
