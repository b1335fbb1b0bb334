#include "engine/runtime/kernels/cuda/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int64_t kChunkRows = 64;  // Of a partial sum of weights' gradients.
constexpr int kColumnThreads = 64;
constexpr int kSumThreads = 128;

template <typename T, int N>
__global__ void Forward(
    const T* x, const float* weight, T* y, float* rstd, int64_t dim, float epsilon) {
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
__global__ void InputGradient(
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

// A thread adds N columns of a chunk of rows, from the first to the last.
template <typename T, int N>
__global__ void PartOfWeightGradient(
    const T* dy, const T* x, const float* rstd, float* parts, int64_t rows, int64_t dim) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= dim) {
    return;
  }
  const int64_t first = int64_t{blockIdx.x} * kChunkRows;
  const int64_t end = first + kChunkRows < rows ? first + kChunkRows : rows;
  float sum[N] = {};
  for (int64_t row = first; row < end; ++row) {
    float d[N];
    float v[N];
    Load<T, N>(dy + row * dim + column, d);
    Load<T, N>(x + row * dim + column, v);
    const float r = rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum[j] += d[j] * (v[j] * r);
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    parts[int64_t{blockIdx.x} * dim + column + j] = sum[j];
  }
}

__global__ void AddParts(const float* parts, float* sums, int64_t count, int64_t dim) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= dim) {
    return;
  }
  float sum = 0;
  for (int64_t part = 0; part < count; ++part) {
    sum += parts[part * dim + column];
  }
  sums[column] = sum;
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

int64_t RmsNormChunks(int64_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}

void RmsNormWeightGradient(const RowShape& shape,
                           const void* dy,
                           const void* x,
                           const float* rstd,
                           float* scratch,
                           float* dweight,
                           Stream stream) {
  const int64_t chunks = RmsNormChunks(shape.rows);
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    const dim3 blocks(BlocksFor(chunks, 1), BlocksFor(shape.dim, kColumnThreads * N));
    PartOfWeightGradient<T, N><<<blocks, kColumnThreads, 0, stream>>>(
        As<T>(dy), As<T>(x), rstd, scratch, shape.rows, shape.dim);
  });
  AddParts<<<BlocksFor(shape.dim, kSumThreads), kSumThreads, 0, stream>>>(scratch, dweight, chunks,
                                                                          shape.dim);
}

}  // namespace heddle::runtime::cuda
