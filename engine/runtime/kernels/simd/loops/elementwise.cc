// Activations, rotary positions and additions.
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/loops/vector.h"

namespace heddle::simd::HEDDLE_SIMD_SET {
namespace {

template <typename T>
using Wide = typename WideOf<T>::Type;

constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

template <typename T, typename W = Wide<T>>
void Rope(const T* x,
          const W* cosine,
          const W* sine,
          T* y,
          int64_t begin,
          int64_t end,
          int64_t length,
          int64_t heads,
          int64_t head_dim,
          bool inverse) {
  const int64_t half = head_dim / 2;
  const W sign = inverse ? W{-1} : W{1};
  for (int64_t r = begin; r < end; ++r) {
    const W* c = cosine + (r % length) * half;
    const W* s = sine + (r % length) * half;
    for (int64_t h = 0; h < heads; ++h) {
      const T* low = x + (r * heads + h) * head_dim;
      const T* high = low + half;
      T* out = y + (r * heads + h) * head_dim;
      Each<W>(half, [&](int64_t i, auto access) {
        const Vector<W> a = access.Get(low + i);
        const Vector<W> b = access.Get(high + i);
        const Vector<W> cs = access.Get(c + i);
        const Vector<W> sn = access.Get(s + i) * sign;
        access.Put(out + i, a * cs - b * sn);
        access.Put(out + half + i, b * cs + a * sn);
      });
    }
  }
}

template <typename T, typename W = Wide<T>>
void Swiglu(const T* gate, const T* up, T* y, int64_t count) {
  Each<W>(count, [&](int64_t i, auto access) {
    const Vector<W> g = access.Get(gate + i);
    access.Put(y + i, g * Sigmoid(g) * access.Get(up + i));
  });
}

template <typename T, typename W = Wide<T>>
void SwigluGradient(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  Each<W>(count, [&](int64_t i, auto access) {
    const Vector<W> d = access.Get(dy + i);
    const Vector<W> g = access.Get(gate + i);
    const Vector<W> s = Sigmoid(g);
    access.Put(dgate + i, d * access.Get(up + i) * s * (1 + g * (1 - s)));
    access.Put(dup + i, d * g * s);
  });
}

template <typename T, typename W = Wide<T>>
void Gelu(const T* x, T* y, int64_t count) {
  constexpr W kTwice = static_cast<W>(2 * kRootTwoOverPi);
  constexpr W kInner = static_cast<W>(kCubic);
  Each<W>(count, [&](int64_t i, auto access) {
    const Vector<W> v = access.Get(x + i);
    access.Put(y + i, v * Sigmoid((v + v * v * v * kInner) * kTwice));
  });
}

template <typename T, typename W = Wide<T>>
void GeluGradient(const T* dy, const T* x, T* dx, int64_t count) {
  constexpr W kTwice = static_cast<W>(2 * kRootTwoOverPi);
  constexpr W kInner = static_cast<W>(kCubic);
  Each<W>(count, [&](int64_t i, auto access) {
    const Vector<W> v = access.Get(x + i);
    const Vector<W> square = v * v;
    const Vector<W> s = Sigmoid((v + square * v * kInner) * kTwice);
    const Vector<W> slope = kTwice * (1 + square * (3 * kInner));
    access.Put(dx + i, access.Get(dy + i) * (s + v * s * (1 - s) * slope));
  });
}

template <typename T, typename W = Wide<T>>
void Add(const T* a, const T* b, T* y, int64_t count) {
  Each<W>(count, [&](int64_t i, auto access) {
    access.Put(y + i, access.Get(a + i) + access.Get(b + i));
  });
}

template <typename T, typename W = Wide<T>>
void AddBias(T* y, const W* bias, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, y += dim) {
    Each<W>(dim, [&](int64_t i, auto access) {
      access.Put(y + i, access.Get(y + i) + access.Get(bias + i));
    });
  }
}

}  // namespace

template <typename T>
void FillElementwise(LoopTable<T>& table) {
  table.rope = Rope<T>;
  table.swiglu = Swiglu<T>;
  table.swiglu_gradient = SwigluGradient<T>;
  table.gelu = Gelu<T>;
  table.gelu_gradient = GeluGradient<T>;
  table.add = Add<T>;
  table.add_bias = AddBias<T>;
}

HEDDLE_SIMD_FILL(FillElementwise);

}  // namespace heddle::simd::HEDDLE_SIMD_SET
