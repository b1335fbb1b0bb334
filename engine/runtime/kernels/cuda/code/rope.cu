#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;

// A thread rotates N pairs of one head.
template <typename T, int N>
__global__ void Rotate(const T* x,
                       const float* cosines,
                       const float* sines,
                       T* y,
                       int64_t count,
                       int64_t length,
                       int64_t heads,
                       int64_t half,
                       float sign) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= count) {
    return;
  }
  const int64_t packs = half / N;
  const int64_t head = index / packs;  // Of all rows.
  const int64_t pair = index % packs * N;
  const int64_t low_at = head * 2 * half + pair;
  const int64_t table_at = head / heads % length * half + pair;
  float low[N];
  float high[N];
  Load<T, N>(x + low_at, low);
  Load<T, N>(x + low_at + half, high);
  float new_low[N];
  float new_high[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float c = cosines[table_at + j];
    const float s = sign * sines[table_at + j];
    new_low[j] = low[j] * c - high[j] * s;
    new_high[j] = high[j] * c + low[j] * s;
  }
  Store<T, N>(y + low_at, new_low);
  Store<T, N>(y + low_at + half, new_high);
}

}  // namespace

void Rope(const RopeShape& shape,
          const void* x,
          const float* cosines,
          const float* sines,
          void* y,
          bool inverse,
          Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.half), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    const int64_t count = shape.rows * shape.heads * (shape.half / N);
    Rotate<T, N><<<BlocksFor(count, kThreads), kThreads, 0, stream>>>(
        As<T>(x), cosines, sines, As<T>(y), count, shape.length, shape.heads, shape.half,
        inverse ? -1.0F : 1.0F);
  });
}

}  // namespace heddle::runtime::cuda
