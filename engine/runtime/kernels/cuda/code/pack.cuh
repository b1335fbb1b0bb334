// What the CUDA kernels share: values that are read and written several at once, sums over a block in a
// fixed order, the logistic function, and how many threads and blocks there are.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "engine/runtime/kernels/cuda/code/launch.h"

namespace heddle::runtime::cuda {

using Bf16 = __nv_bfloat16;
constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;  // Of a block.

// N values that lie together, aligned by their size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

__device__ inline float Widened(float value) {
  return value;
}
__device__ inline float Widened(Bf16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ inline T Narrowed(float value);
template <>
__device__ inline float Narrowed<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 Narrowed<Bf16>(float value) {
  return __float2bfloat16_rn(value);
}

template <typename T, int N>
__device__ inline void Load(const T* from, float (&to)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = Widened(pack.values[i]);
  }
}

template <typename T, int N>
__device__ inline void Store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    pack.values[i] = Narrowed<T>(from[i]);
  }
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

__device__ inline float Sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

// The sum over all threads of a block, by pairs within warps and then warp by warp; all threads get
// it. All threads of the block call it, and their number is a multiple of kWarp.
template <typename A>
__device__ inline A BlockSum(A value) {
  __shared__ A warps[kMaxThreads / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
  }
  __syncthreads();  // The memory may still be read for the sum before.
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  A sum = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
    sum += warps[i];
  }
  return sum;
}

// The largest value of all threads.
__device__ inline float BlockMax(float value) {
  __shared__ float warps[kMaxThreads / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) {
    warps[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
    value = fmaxf(value, warps[i]);
  }
  return value;
}

// Threads for `items` that a block takes together.
inline unsigned ThreadsFor(int64_t items, int most = kMaxThreads) {
  const int64_t whole = (items + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(whole < kWarp ? kWarp : whole > most ? most : whole);
}

// Blocks for `items`, `each` of them in one.
inline unsigned BlocksFor(int64_t items, int64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

// True if each row of `dim` values begins where a pack of 16 bytes may lie.
inline bool FitsPacks(Type type, int64_t dim) {
  return dim % (type == Type::kF32 ? 4 : 8) == 0;
}
template <typename T>
constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

template <typename T, int N>
struct Format {
  using Value = T;
  static constexpr int kPack = N;
};

// Calls body with the Format of the type: packs of 16 bytes if `packed`, else of one value.
template <typename Body>
void WithFormat(Type type, bool packed, const Body& body) {
  if (type == Type::kF32) {
    packed ? body(Format<float, kPackOf<float>>()) : body(Format<float, 1>());
  } else {
    packed ? body(Format<Bf16, kPackOf<Bf16>>()) : body(Format<Bf16, 1>());
  }
}

template <typename T>
const T* As(const void* memory) {
  return static_cast<const T*>(memory);
}
template <typename T>
T* As(void* memory) {
  return static_cast<T*>(memory);
}

}  // namespace heddle::runtime::cuda
