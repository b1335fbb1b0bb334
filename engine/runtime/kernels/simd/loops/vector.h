/// \file
/// Vectors of 64 bytes in the compilers' own vector extension: GCC and Clang lower them to whatever
/// the instruction set has, so one source serves all. Only builtins and intrinsics are used (see
/// ../CMakeLists.txt).
#pragma once

#ifdef __FMA__
#include <immintrin.h>
#endif

#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::simd::HEDDLE_SIMD_SET {

#define HEDDLE_INLINE inline __attribute__((always_inline))

template <typename W>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = float __attribute__((vector_size(64)));
  using Bits = int32_t __attribute__((vector_size(64)));
};
template <>
struct VectorOf<double> {
  using Type = double __attribute__((vector_size(64)));
  using Bits = int64_t __attribute__((vector_size(64)));
};
template <typename W>
using Vector = typename VectorOf<W>::Type;
template <typename W>
constexpr int64_t kLanes = static_cast<int64_t>(64 / sizeof(W));

using Half = uint16_t __attribute__((vector_size(32)));
using Words = uint32_t __attribute__((vector_size(64)));

template <typename W>
HEDDLE_INLINE Vector<W> Splat(W value) {
  return value - Vector<W>{};
}

HEDDLE_INLINE Vector<float> FromBf16(Half bits) {
  const Words words = __builtin_convertvector(bits, Words) << 16;
  Vector<float> values;
  __builtin_memcpy(&values, &words, sizeof values);
  return values;
}

/// Rounds to nearest even; NaN stays NaN.
HEDDLE_INLINE Half ToBf16(Vector<float> values) {
  Words words;
  __builtin_memcpy(&words, &values, sizeof words);
  const Words rounded = (words + 0x7fffU + ((words >> 16) & 1U)) >> 16;
  const Words quiet = Words{} + 0x7fc0U;
  return __builtin_convertvector(values == values ? rounded : quiet, Half);
}

HEDDLE_INLINE Vector<float> Load(const float* at) {
  Vector<float> values;
  __builtin_memcpy(&values, at, sizeof values);
  return values;
}
HEDDLE_INLINE Vector<double> Load(const double* at) {
  Vector<double> values;
  __builtin_memcpy(&values, at, sizeof values);
  return values;
}
HEDDLE_INLINE Vector<float> Load(const Bf16* at) {
  Half bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return FromBf16(bits);
}
HEDDLE_INLINE void Store(float* at, Vector<float> values) {
  __builtin_memcpy(at, &values, sizeof values);
}
HEDDLE_INLINE void Store(double* at, Vector<double> values) {
  __builtin_memcpy(at, &values, sizeof values);
}
HEDDLE_INLINE void Store(Bf16* at, Vector<float> values) {
  const Half bits = ToBf16(values);
  __builtin_memcpy(at, &bits, sizeof bits);
}

/// The first `count` elements, 0 behind them.
template <typename T>
HEDDLE_INLINE auto LoadPart(const T* at, int64_t count) {
  T padded[64 / sizeof(typename WideOf<T>::Type)] = {};
  for (int64_t i = 0; i < count; ++i) {
    padded[i] = at[i];
  }
  return Load(padded);
}
template <typename T, typename V>
HEDDLE_INLINE void StorePart(T* at, V values, int64_t count) {
  T padded[64 / sizeof(typename WideOf<T>::Type)];
  Store(padded, values);
  for (int64_t i = 0; i < count; ++i) {
    at[i] = padded[i];
  }
}

/// Calls body(first element, whole) for each whole vector of [0, count), then once for the rest
/// with its length. `body` is (int64_t at, auto load, auto store); see Each below.
struct WholeAccess {
  template <typename T>
  HEDDLE_INLINE auto Get(const T* at) const {
    return Load(at);
  }
  template <typename T, typename V>
  HEDDLE_INLINE void Put(T* at, V values) const {
    Store(at, values);
  }
};
struct PartAccess {
  int64_t count;
  template <typename T>
  HEDDLE_INLINE auto Get(const T* at) const {
    return LoadPart(at, count);
  }
  template <typename T, typename V>
  HEDDLE_INLINE void Put(T* at, V values) const {
    StorePart(at, values, count);
  }
};

/// Runs body(i, access) over [0, count) in vectors of W; `access` loads and stores vectors at i,
/// cut off and padded with 0 in the last, partial one.
template <typename W, typename Body>
HEDDLE_INLINE void Each(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes<W> <= count; i += kLanes<W>) {
    body(i, WholeAccess{});
  }
  if (i < count) {
    body(i, PartAccess{count - i});
  }
}

/// Sum of the lanes as a balanced tree.
template <typename W>
HEDDLE_INLINE W Sum(Vector<W> values) {
  W lanes[kLanes<W>];
  Store(lanes, values);
  for (int64_t width = kLanes<W> / 2; width >= 1; width /= 2) {
    for (int64_t i = 0; i < width; ++i) {
      lanes[i] += lanes[i + width];
    }
  }
  return lanes[0];
}

template <typename W>
HEDDLE_INLINE W Largest(Vector<W> values) {
  W largest = values[0];
  for (int64_t i = 1; i < kLanes<W>; ++i) {
    largest = values[i] > largest ? values[i] : largest;
  }
  return largest;
}

/// exp, within 2 units in the last place; below -87.3 it is 0, above 88.7 infinity, NaN stays NaN.
/// Range reduction by ln 2 in two parts and the polynomial of Cephes' expf (Moshier).
HEDDLE_INLINE Vector<float> Exp(Vector<float> x) {
  const Vector<float> magic = Splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer.
  const Vector<float> low = Splat(-87.3F);
  const Vector<float> high = Splat(88.7F);
  const Vector<float> clamped = x < low ? low : (x > high ? high : x);
  const Vector<float> shifted = clamped * 1.44269504088896341F + magic;
  const Vector<float> n = shifted - magic;
  const Vector<float> r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  Vector<float> p = Splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  using Bits = VectorOf<float>::Bits;
  Bits exponent;
  __builtin_memcpy(&exponent, &shifted, sizeof exponent);
  Bits bits;
  __builtin_memcpy(&bits, &p, sizeof bits);
  // The low bits of `shifted` are n plus those of the magic number, which are 0x4b400000.
  bits += (exponent - 0x4b400000) << 23;
  Vector<float> result;
  __builtin_memcpy(&result, &bits, sizeof result);
  result = x < low ? Vector<float>{} : result;
  result = x > high ? Splat(__builtin_inff()) : result;
  return x == x ? result : x;
}
HEDDLE_INLINE Vector<double> Exp(Vector<double> x) {
  for (int64_t i = 0; i < kLanes<double>; ++i) {
    x[i] = __builtin_exp(x[i]);
  }
  return x;
}

template <typename V>
HEDDLE_INLINE V Sigmoid(V x) {
  return 1 / (1 + Exp(-x));
}

HEDDLE_INLINE float Root(float x) {
  return __builtin_sqrtf(x);
}
HEDDLE_INLINE double Root(double x) {
  return __builtin_sqrt(x);
}
HEDDLE_INLINE float Log(float x) {
  return __builtin_logf(x);
}
HEDDLE_INLINE double Log(double x) {
  return __builtin_log(x);
}
/// FmaOfEach is a * b + c of each lane, rounded once: by an instruction where the set has one, by the
/// C library elsewhere. GCC joins no lanes of two registers, so that the instruction is named.
#if defined(__AVX512F__)
HEDDLE_INLINE Vector<float> FmaOfEach(Vector<float> a, Vector<float> b, Vector<float> c) {
  return _mm512_fmadd_ps(a, b, c);
}
HEDDLE_INLINE Vector<double> FmaOfEach(Vector<double> a, Vector<double> b, Vector<double> c) {
  return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__FMA__)
HEDDLE_INLINE Vector<float> FmaOfEach(Vector<float> a, Vector<float> b, Vector<float> c) {
  __m256 x[2];
  __m256 y[2];
  __m256 z[2];
  __builtin_memcpy(x, &a, sizeof a);
  __builtin_memcpy(y, &b, sizeof b);
  __builtin_memcpy(z, &c, sizeof c);
  z[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
  z[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
  __builtin_memcpy(&c, z, sizeof c);
  return c;
}
HEDDLE_INLINE Vector<double> FmaOfEach(Vector<double> a, Vector<double> b, Vector<double> c) {
  __m256d x[2];
  __m256d y[2];
  __m256d z[2];
  __builtin_memcpy(x, &a, sizeof a);
  __builtin_memcpy(y, &b, sizeof b);
  __builtin_memcpy(z, &c, sizeof c);
  z[0] = _mm256_fmadd_pd(x[0], y[0], z[0]);
  z[1] = _mm256_fmadd_pd(x[1], y[1], z[1]);
  __builtin_memcpy(&c, z, sizeof c);
  return c;
}
#else
HEDDLE_INLINE Vector<float> FmaOfEach(Vector<float> a, Vector<float> b, Vector<float> c) {
  for (int64_t i = 0; i < kLanes<float>; ++i) {
    c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  }
  return c;
}
HEDDLE_INLINE Vector<double> FmaOfEach(Vector<double> a, Vector<double> b, Vector<double> c) {
  for (int64_t i = 0; i < kLanes<double>; ++i) {
    c[i] = __builtin_fma(a[i], b[i], c[i]);
  }
  return c;
}
#endif
template <typename W>
HEDDLE_INLINE Vector<W> RootOfEach(Vector<W> x) {
  for (int64_t i = 0; i < kLanes<W>; ++i) {
    x[i] = Root(x[i]);
  }
  return x;
}

}  // namespace heddle::simd::HEDDLE_SIMD_SET
