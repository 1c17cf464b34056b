// Every bound the tests compare against, in one place (CONTRIBUTING.md has the policy).
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace fem::testing {

// An error bound relative to the largest magnitude of the expected tensor: |actual - expected| <= bound *
// max|expected|.
struct Tolerance {
  double bound;
};

constexpr double kEps64 = 2.220446049250313e-16;
constexpr double kEps32 = 1.1920929e-07;
constexpr double kEps16 = 7.8125e-03;  // bfloat16

// Another implementation of the same formula in float64 (goldens, definition against kernel, streaming against whole).
constexpr Tolerance kFloat64{1e-9};
// Identities and inequalities between quantities of order one, computed in float64 in two ways: absolute.
constexpr double kSlack = 1e-9;
// Where an increasing function reaches a value, by halving: its rounding over its slope, absolute.
constexpr double kSolved = 1e-7;
// Central differences of such a place with step 1e-3, relative.
constexpr double kCoarseDifference = 1e-3;
// Central differences in float64 with step 1e-6: truncation and cancellation leave about eight digits.
constexpr Tolerance kFiniteDifference{2e-7};
// A float32 result that is exact but for the roundings of its last few operations.
constexpr Tolerance kFloat32Exact{4 * kEps32};
// A float32 kernel against the float64 definition: sums of a few thousand terms lose some tens of eps.
constexpr Tolerance kFloat32{64 * kEps32};
// Gradients go through one more product and division.
constexpr Tolerance kFloat32Gradient{256 * kEps32};
// A whole layer in float32: a dozen operators, two normalisations.
constexpr Tolerance kFloat32Layer{512 * kEps32};
constexpr Tolerance kFloat32LayerGradient{2048 * kEps32};
// bfloat16 in and out, float32 inside: the rounding of inputs and outputs dominates.
constexpr Tolerance kBfloat16{2 * kEps16};
constexpr Tolerance kBfloat16Gradient{4 * kEps16};
// Root-mean-square, forward and backward: a rounding leaves a quarter of eps, and a gradient takes up to four of them.
constexpr Tolerance kBfloat16OnAverage{kEps16};
// A whole layer in bfloat16: every operator rounds.
constexpr Tolerance kBfloat16Layer{16 * kEps16};

// Thousands of tokens streamed against the same at once, in one dtype: the same terms in other groups, and a state that
// is rounded between calls. Errors of single roundings add up like a random walk: some tens of eps. In bfloat16 states
// are float32, so that only the outputs' own rounding can fall to the other side: a unit in the last place of each of
// two operators.
constexpr Tolerance kFloat64Streaming{256 * kEps64};
constexpr Tolerance kFloat32Streaming{64 * kEps32};
constexpr Tolerance kBfloat16Streaming{2 * kEps16};
inline Tolerance streaming_tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? kFloat64Streaming : dtype == at::kFloat ? kFloat32Streaming : kBfloat16Streaming;
}
// The error of a stream in bfloat16 relative to that of the whole, both against float64: roundings of outputs, which
// both have, are nearly all of it.
constexpr double kTimesWholeBfloat16 = 1.05;

// A bfloat16 kernel against its definition in bfloat16, plain ATen that rounds what it computes.
constexpr double kTimesPlainBfloat16 = 2;
// Most gradients of a layer are at 1; that of gla's beta, a difference of sums in which the rounded F stands, is at 3.
constexpr double kTimesPlainBfloat16Gradient = 4;
// A bfloat16 stream against one call: the same roundings, of sums in another order.
constexpr double kTimesOneCall = 1.25;

inline Tolerance forward_tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? kFloat64 : dtype == at::kFloat ? kFloat32 : kBfloat16;
}
inline Tolerance gradient_tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? kFloat64 : dtype == at::kFloat ? kFloat32Gradient : kBfloat16Gradient;
}

// Compares in float64. Shapes, infinities and NaN must agree. The bound is relative to the largest expected element, or
// to the magnitude of the terms which cancel, where the result is their small difference.
// An expected tensor that is zero throughout proves nothing and fails, whatever the magnitude.
::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                                 double magnitude = 0);

// What must be zero is: but for the rounding of terms of this magnitude that cancel.
::testing::AssertionResult vanishes(const at::Tensor& actual, Tolerance tolerance, double magnitude);

// How often the root-mean-square error of plain goes into that of actual.
double times_plain(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& exact);

// The same root-mean-square, error and size alike.
::testing::AssertionResult close_on_average(const at::Tensor& actual, const at::Tensor& expected, Tolerance tolerance,
                                            double magnitude = 0);

// The same element by element, relative to terms: the sizes of what each element is a sum of, added up.
::testing::AssertionResult close_beside_terms(const at::Tensor& actual, const at::Tensor& expected,
                                              const at::Tensor& terms, Tolerance tolerance);

// The errors of actual, root-mean-square and largest, are at most `times` those of plain (both in bfloat16), or of the
// exact result rounded to bfloat16 where that is more. Fails, as close does, if the exact result is zero throughout.
::testing::AssertionResult about_as_exact(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& exact,
                                          double times);

}  // namespace fem::testing
