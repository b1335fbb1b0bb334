#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kSumThreads = 1024;

// Two passes over a row: the largest logit, then the sum of exponentials below it.
template <typename T, int N>
__global__ void Forward(
    const T* logits, const int32_t* targets, float* lse, float* losses, int64_t dim) {
  const int64_t row = blockIdx.x;
  logits += row * dim;
  float top = -INFINITY;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float v[N];
    Load<T, N>(logits + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      // Not fmaxf, which drops a NaN: what is not a number has to show in the loss.
      top = v[j] > top || isnan(v[j]) ? v[j] : top;
    }
  }
  const bool is_number = __syncthreads_and(!isnan(top)) != 0;
  top = is_number ? BlockMax(top) : NAN;
  float sum = 0;
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float v[N];
    Load<T, N>(logits + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum += expf(v[j] - top);
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    lse[row] = top + logf(sum);
    losses[row] = lse[row] - Widened(logits[targets[row]]);
  }
}

__global__ void AddLosses(const float* losses, int64_t rows, double scale, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    sum += static_cast<double>(losses[i]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    *total = sum * scale;
  }
}

template <typename T, int N>
__global__ void Gradient(const T* logits,
                         const int32_t* targets,
                         const float* lse,
                         T* dlogits,
                         int64_t dim,
                         int64_t first,
                         float scale) {
  const int64_t row = blockIdx.x;
  logits += row * dim;
  dlogits += row * dim;
  const int64_t target = targets[row] - first;
  const float l = lse[row];
  for (int64_t i = threadIdx.x * N; i < dim; i += blockDim.x * N) {
    float v[N];
    Load<T, N>(logits + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] = scale * (expf(v[j] - l) - (i + j == target ? 1.0F : 0.0F));
    }
    Store<T, N>(dlogits + i, v);
  }
}

}  // namespace

void CrossEntropy(const RowShape& shape,
                  const void* logits,
                  const int32_t* targets,
                  float* lse,
                  float* losses,
                  double* total,
                  double scale,
                  Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Forward<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N, kRowThreads), 0, stream>>>(
        As<T>(logits), targets, lse, losses, shape.dim);
  });
  AddLosses<<<1, kSumThreads, 0, stream>>>(losses, shape.rows, scale, total);
}

void CrossEntropyGradient(const RowShape& shape,
                          const void* logits,
                          const int32_t* targets,
                          const float* lse,
                          void* dlogits,
                          int64_t first,
                          float scale,
                          Stream stream) {
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    Gradient<T, N><<<BlocksFor(shape.rows, 1), ThreadsFor(shape.dim / N, kRowThreads), 0, stream>>>(
        As<T>(logits), targets, lse, As<T>(dlogits), shape.dim, first, scale);
  });
}

}  // namespace heddle::runtime::cuda
