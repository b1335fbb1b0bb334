#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads) Forward(const T* x,
                                                       const float* weight,
                                                       const float* bias,
                                                       T* y,
                                                       float* mean,
                                                       float* rstd,
                                                       int64_t dim,
                                                       float epsilon) {
  const int64_t row = blockIdx.x;
  x += row * dim;
  y += row * dim;
  float v[N];
  float sum = 0;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum += v[j];
    }
  }
  const float m = BlockSum(sum) / static_cast<float>(dim);
  float squares = 0;  // In a pass of its own: of mean(x^2) - mean^2 little would be left.
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      squares += (v[j] - m) * (v[j] - m);
    }
  }
  const float r = 1.0F / sqrtf(BlockSum(squares) / static_cast<float>(dim) + epsilon);
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] = (v[j] - m) * r * weight[i + j] + bias[i + j];
    }
    Store<T, N>(y + i, v);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads) InputGradient(const T* dy,
                                                             const T* x,
                                                             const float* weight,
                                                             const float* mean,
                                                             const float* rstd,
                                                             T* dx,
                                                             int64_t dim) {
  const int64_t row = blockIdx.x;
  dy += row * dim;
  x += row * dim;
  dx += row * dim;
  const float m = mean[row];
  const float r = rstd[row];
  float d[N];
  float v[N];
  float sum = 0;
  float product = 0;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    Load<T, N>(dy + i, d);
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float h = d[j] * weight[i + j];
      sum += h;
      product += h * ((v[j] - m) * r);
    }
  }
  const float mean_h = BlockSum(sum) / static_cast<float>(dim);
  const float mean_hn = BlockSum(product) / static_cast<float>(dim);
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    Load<T, N>(dy + i, d);
    Load<T, N>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      d[j] = r * (d[j] * weight[i + j] - mean_h - (v[j] - m) * r * mean_hn);
    }
    Store<T, N>(dx + i, d);
  }
}

}  // namespace

void LayerNorm(const RowShape& shape,
               const void* x,
               const float* weight,
               const float* bias,
               void* y,
               float* mean,
               float* rstd,
               float epsilon,
               Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Forward<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N), 0, stream>>>(
        As<T>(x), weight, bias, As<T>(y), mean, rstd, shape.dim, epsilon);
  });
}

void LayerNormInputGradient(const RowShape& shape,
                            const void* dy,
                            const void* x,
                            const float* weight,
                            const float* mean,
                            const float* rstd,
                            void* dx,
                            Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    InputGradient<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N), 0, stream>>>(
        As<T>(dy), As<T>(x), weight, mean, rstd, As<T>(dx), shape.dim);
  });
}

}  // namespace heddle::runtime::cuda
