#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int N>
__global__ void Forward(const T* gate, const T* up, T* y, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (first >= count) {
    return;
  }
  float g[N];
  float u[N];
  Load<T, N>(gate + first, g);
  Load<T, N>(up + first, u);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    g[j] = g[j] * Sigmoid(g[j]) * u[j];
  }
  Store<T, N>(y + first, g);
}

template <typename T, int N>
__global__ void Gradient(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (first >= count) {
    return;
  }
  float d[N];
  float g[N];
  float u[N];
  Load<T, N>(dy + first, d);
  Load<T, N>(gate + first, g);
  Load<T, N>(up + first, u);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float s = Sigmoid(g[j]);
    u[j] = d[j] * u[j] * s * (1.0F + g[j] * (1.0F - s));
    g[j] = d[j] * g[j] * s;
  }
  Store<T, N>(dgate + first, u);
  Store<T, N>(dup + first, g);
}

}  // namespace

void Swiglu(Type type, int64_t count, const void* gate, const void* up, void* y, Stream stream) {
  WithFormat(type, FitsPacks(type, count), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Forward<T, N><<<BlocksFor(count, kThreads * N), kThreads, 0, stream>>>(As<T>(gate), As<T>(up),
                                                                           As<T>(y), count);
  });
}

void SwigluGradient(Type type,
                    int64_t count,
                    const void* dy,
                    const void* gate,
                    const void* up,
                    void* dgate,
                    void* dup,
                    Stream stream) {
  WithFormat(type, FitsPacks(type, count), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Gradient<T, N><<<BlocksFor(count, kThreads * N), kThreads, 0, stream>>>(
        As<T>(dy), As<T>(gate), As<T>(up), As<T>(dgate), As<T>(dup), count);
  });
}

}  // namespace heddle::runtime::cuda
