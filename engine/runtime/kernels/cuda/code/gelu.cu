#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kTwice = 1.59576912160573071176F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;

template <typename T, int N>
__global__ void Forward(const T* x, T* y, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (first >= count) {
    return;
  }
  float v[N];
  Load<T, N>(x + first, v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    v[j] = v[j] * Sigmoid((v[j] + v[j] * v[j] * v[j] * kCubic) * kTwice);
  }
  Store<T, N>(y + first, v);
}

template <typename T, int N>
__global__ void Gradient(const T* dy, const T* x, T* dx, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (first >= count) {
    return;
  }
  float d[N];
  float v[N];
  Load<T, N>(dy + first, d);
  Load<T, N>(x + first, v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float square = v[j] * v[j];
    const float s = Sigmoid((v[j] + square * v[j] * kCubic) * kTwice);
    const float slope = kTwice * (1.0F + square * (3.0F * kCubic));
    d[j] *= s + v[j] * s * (1.0F - s) * slope;
  }
  Store<T, N>(dx + first, d);
}

}  // namespace

void Gelu(Type type, int64_t count, const void* x, void* y, Stream stream) {
  WithFormat(type, FitsPacks(type, count), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Forward<T, N>
        <<<BlocksFor(count, kThreads * N), kThreads, 0, stream>>>(As<T>(x), As<T>(y), count);
  });
}

void GeluGradient(
    Type type, int64_t count, const void* dy, const void* x, void* dx, Stream stream) {
  WithFormat(type, FitsPacks(type, count), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Gradient<T, N><<<BlocksFor(count, kThreads * N), kThreads, 0, stream>>>(As<T>(dy), As<T>(x),
                                                                            As<T>(dx), count);
  });
}

}  // namespace heddle::runtime::cuda
