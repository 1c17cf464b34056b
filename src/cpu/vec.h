// Vector vocabulary of the kernels: one source, as many float lanes as the instruction set of the translation unit has.
// On the compiler's vector extension, so that the generic build is SIMD too (docs/decisions/0002-own-tiles.md).
// Everything is in an anonymous namespace: no symbol built for one instruction set can be kept for another.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace fem::cpu {
namespace {

#if defined(FEM_LANES)
constexpr int kLanes = FEM_LANES;  // wider than the registers: the compiler splits each vector
#elif defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));

struct Bfloat16 {
  uint16_t bits;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLn2 = 0.693147180559945f;

inline Floats splat(float x) { return x - Floats{}; }  // x - 0 is a broadcast; 0 + x is not (-0)
inline Ints splat(int32_t x) { return x - Ints{}; }
inline Floats select(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }
inline Floats max(Floats a, Floats b) { return a > b ? a : b; }
inline Floats abs(Floats x) { return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & 0x7fffffff); }

// An element of memory whose type is known only here.
template <typename Scalar>
inline const Scalar* at(const void* data, int64_t offset) {
  return static_cast<const Scalar*>(data) + offset;
}
template <typename Scalar>
inline Scalar* at(void* data, int64_t offset) {
  return static_cast<Scalar*>(data) + offset;
}

template <typename Vector, typename Element>
inline Vector load_as(const Element* p) {
  Vector x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline Floats load(const float* p) { return load_as<Floats>(p); }
inline Ints load(const int32_t* p) { return load_as<Ints>(p); }
inline Floats load(const Bfloat16* p) {
  return reinterpret_cast<Floats>(__builtin_convertvector(load_as<Halves>(p), Words) << 16);
}

inline void store(float* p, Floats x) { std::memcpy(p, &x, sizeof(x)); }
inline void store(Bfloat16* p, Floats x) {  // to nearest, ties to even
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Halves halves = __builtin_convertvector(x == x ? rounded : (bits >> 16) | 0x40, Halves);
  std::memcpy(p, &halves, sizeof(halves));
}

// The first count < kLanes elements; the other lanes are 0 (load) or left alone (store). Where there are masked moves,
// floats take them: a copy of some bytes is a call, and costs as much as the rest of a narrow row.
template <typename Scalar>
inline Floats load_first(const Scalar* p, int64_t count) {
  Scalar buffer[kLanes] = {};
  std::memcpy(buffer, p, count * sizeof(Scalar));
  return load(buffer);
}
template <typename Scalar>
inline void store_first(Scalar* p, Floats x, int64_t count) {
  Scalar buffer[kLanes];
  store(buffer, x);
  std::memcpy(p, buffer, count * sizeof(Scalar));
}
#if defined(__AVX512F__) && !defined(FEM_LANES)
inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline Floats load_first(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
inline void store_first(float* p, Floats x, int64_t count) { _mm512_mask_storeu_ps(p, first_lanes(count), x); }
#elif defined(__AVX2__) && !defined(FEM_LANES)
inline __m256i first_lanes(int64_t count) {
  static constexpr int32_t kOnesThenZeros[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return reinterpret_cast<__m256i>(load(kOnesThenZeros + kLanes - count));
}
inline Floats load_first(const float* p, int64_t count) { return _mm256_maskload_ps(p, first_lanes(count)); }
inline void store_first(float* p, Floats x, int64_t count) { _mm256_maskstore_ps(p, first_lanes(count), x); }
#endif

// Calls body(offset, load, store) over width elements, whole vectors first, then the tail: one loop body for both.
template <typename Body>
inline void for_vectors(int64_t width, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    body(i, [](const auto* p) { return load(p); }, [](auto* p, Floats x) { store(p, x); });
  if (const int64_t rest = width - i; rest > 0)
    body(
        i, [rest](const auto* p) { return load_first(p, rest); },
        [rest](auto* p, Floats x) { store_first(p, x, rest); });
}

inline float sum(Floats x) {
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += x[lane];
  return total;
}
inline float max(Floats x) {
  float highest = x[0];
  for (int lane = 1; lane < kLanes; ++lane) highest = x[lane] > highest ? x[lane] : highest;
  return highest;
}

// 2^kBias e^x = power e^rest with |rest| <= ln2 / 2, for x <= 88 - 0.69 kBias; power = 0 below 2^-126. NaN stays.
struct SplitExp {
  Floats power, rest;
};
template <int kBias = 0>
inline SplitExp split_exp(Floats x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits; with the rest they are the exponent field of 2^n.
  constexpr float kRound = 12582912.0f + 127 + kBias;
  constexpr float kLowest = -(127 + kBias) * kLn2;  // here the field is 0: a factor of 0
  x = splat(kLowest) > x ? splat(kLowest) : x;
  const Floats shifted = x * kLog2e + kRound;
  const Floats n = shifted - kRound;
  return {reinterpret_cast<Floats>(reinterpret_cast<Words>(shifted) << 23), (x - n * kLn2High) - n * kLn2Low};
}

// c(x) of e^x = 1 + x + x^2 c(x) on |x| <= ln2 / 2, relative error of e^x 4e-9
inline Floats exp_remainder(Floats x) {
  Floats c = splat(1.384711577e-3f);
  c = c * x + 8.368693418e-3f;
  c = c * x + 4.16678064e-2f;
  c = c * x + 1.666652087e-1f;
  return c * x + 4.999999586e-1f;
}

// 2^kBias e^x to 1.5 ulp for x <= 88 - 0.69 kBias; 0 where the result would be below 2^-126 (so e^-inf = 0). NaN stays.
template <int kBias = 0>
inline Floats exp(Floats x) {
  const auto [power, r] = split_exp<kBias>(x);
  return (exp_remainder(r) * (r * r) + (r + 1.0f)) * power;
}

// Natural logarithm to 1.5 ulp for positive normal x; NaN stays. Words: of NaN the differences leave 32 bits.
inline Floats log(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  // Exponent counted from sqrt(1/2), with its sign: the mantissa is in [0.707, 1.414).
  const Ints above = reinterpret_cast<Ints>(bits - 0x3f3504f3u) >> 23;
  const Floats m = reinterpret_cast<Floats>(bits - (reinterpret_cast<Words>(above) << 23)) - 1.0f;
  const Floats e = __builtin_convertvector(above, Floats);
  Floats p = splat(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const Floats square = m * m;
  Floats y = p * m * square + e * -2.12194440e-4f - 0.5f * square;
  y = m + y + e * 0.693359375f;
  return select(x == x, y, x);
}

// e^x - 1 for |x| <= ln2 / 2
inline Floats exp_minus_one(Floats x) { return exp_remainder(x) * (x * x) + x; }

// e^x h for x <= 0. Near 0 as h + (e^x - 1) h in one rounding: e^x itself, rounded, would repeat its error every step
// of a recurrence and lose half the digits over ten thousand.
inline Floats decayed(Floats h, Floats x) { return select(x > -kLn2 / 2, exp_minus_one(x) * h + h, exp(x) * h); }

// 1 / (1 + e^-x) to 3 ulp; below x = -87 it is 0.
inline Floats sigmoid(Floats x) {
  const Floats e = exp(select(x < 0.0f, x, -x));  // of -|x|: never overflows
  return select(x < 0.0f, e, splat(1.0f)) / (1.0f + e);
}

// log(1 + e^x) to 4 ulp for every x: log1p of a small e is e log(1 + e) / ((1 + e) - 1).
inline Floats softplus(Floats x) {
  const Floats e = exp(select(x < 0.0f, x, -x));
  const Floats u = 1.0f + e;
  const Floats log1p = select(u == 1.0f, e, log(u) * (e / (u - 1.0f)));
  return log1p + max(x, Floats{});
}

}  // namespace
}  // namespace fem::cpu
