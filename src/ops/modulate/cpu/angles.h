// Cosine and sine of the angles by which a block of tokens is rotated, formed where they are used: no table of
// positions exists, so that the millionth token costs what the first does.
#pragma once

#include <cmath>

#include "ops/modulate/cpu/kernels.h"

namespace fem::modulate_kernels {
namespace {

// Angles are formed anew at multiples of so many positions and turned on from there: what a position gets depends on
// nothing but the position, and 64 turns in float64 lose 1e-14.
constexpr int64_t kTurns = 64;

// [K] each, at a position. Element c turns by position * frequency_m, its sine with the sign of its place in the pair.
void form_angles(const Angles& angles, int64_t width, int64_t position, double* cosine, double* sine) {
  const auto p = static_cast<double>(position);
  for (int64_t m = 0; m < width / 2; ++m) {
    // The product rounds to 1e-4 at 2^40; what rounding took is turned by as well.
    const double angle = p * angles.frequency[m], rest = std::fma(p, angles.frequency[m], -angle);
    const double c = std::cos(angle), s = std::sin(angle), c_rest = std::cos(rest), s_rest = std::sin(rest);
    const int64_t first = angles.halves ? m : 2 * m, second = angles.halves ? m + width / 2 : 2 * m + 1;
    cosine[first] = cosine[second] = c * c_rest - s * s_rest;
    sine[first] = sine[second] = s * c_rest + c * s_rest;
  }
  for (int64_t even = 0; even < width; even += 2) sine[even] = -sine[even];
}

// The angles of tokens one after the other.
class Walk {
 public:
  Walk(const Angles& angles, int64_t width, double* memory)
      : angles_(angles), width_(width), cosine_(memory), sine_(memory + width) {}

  static int64_t doubles(int64_t width) { return 2 * width; }

  // Goes to a position and writes its row of each, [K].
  void write(int64_t position, float* cosine, float* sine) {
    const int64_t begin = position & -kTurns;
    if (!begun_ || begin > position_ || position < position_) {
      form_angles(angles_, width_, begin, cosine_, sine_);
      position_ = begin;
      begun_ = true;
    }
    for (; position_ < position; ++position_) advance();
    for (int64_t c = 0; c < width_; ++c) {
      cosine[c] = static_cast<float>(cosine_[c]);
      sine[c] = static_cast<float>(sine_[c]);
    }
  }

 private:
  // By one position: (c c' - s s', s c' + c s'), with signed sines the same for both elements of a pair.
  void advance() {
    double* __restrict cosine = cosine_;
    double* __restrict sine = sine_;
    const double *step_cosine = angles_.step_cosine, *step_sine = angles_.step_sine;
    for (int64_t c = 0; c < width_; ++c) {
      const double turned = cosine[c] * step_cosine[c] - sine[c] * step_sine[c];
      sine[c] = sine[c] * step_cosine[c] + cosine[c] * step_sine[c];
      cosine[c] = turned;
    }
  }

  const Angles& angles_;
  const int64_t width_;
  double *cosine_, *sine_;
  int64_t position_ = 0;
  bool begun_ = false;
};

}  // namespace
}  // namespace fem::modulate_kernels
