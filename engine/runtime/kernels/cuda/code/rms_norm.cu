#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads)
    Forward(const T* x, const float* weight, T* y, float* rstd, int64_t dim, float epsilon) {
  const int64_t row = blockIdx.x;
  x += row * dim;
  y += row * dim;
  float sum = 0;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float v[N];
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum += v[j] * v[j];
    }
  }
  const float r = 1.0F / sqrtf(BlockSum(sum) / static_cast<float>(dim) + epsilon);
  if (threadIdx.x == 0) {
    rstd[row] = r;
  }
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float v[N];
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] = v[j] * r * weight[i + j];
    }
    Store<T, N>(y + i, v);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads) InputGradient(
    const T* dy, const T* x, const float* weight, const float* rstd, T* dx, int64_t dim) {
  const int64_t row = blockIdx.x;
  dy += row * dim;
  x += row * dim;
  dx += row * dim;
  const float r = rstd[row];
  float sum = 0;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float d[N];
    float v[N];
    Load<T, N>(dy + i, d);
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum += d[j] * weight[i + j] * (v[j] * r);
    }
  }
  const float mean = BlockSum(sum) / static_cast<float>(dim);
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float d[N];
    float v[N];
    Load<T, N>(dy + i, d);
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      d[j] = r * (d[j] * weight[i + j] - v[j] * r * mean);
    }
    Store<T, N>(dx + i, d);
  }
}

}  // namespace

void RmsNorm(const RowShape& shape,
             const void* x,
             const float* weight,
             void* y,
             float* rstd,
             float epsilon,
             Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Forward<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N), 0, stream>>>(
        As<T>(x), weight, As<T>(y), rstd, shape.dim, epsilon);
  });
}

void RmsNormInputGradient(const RowShape& shape,
                          const void* dy,
                          const void* x,
                          const float* weight,
                          const float* rstd,
                          void* dx,
                          Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    InputGradient<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N), 0, stream>>>(
        As<T>(dy), As<T>(x), weight, rstd, As<T>(dx), shape.dim);
  });
}

}  // namespace heddle::runtime::cuda
