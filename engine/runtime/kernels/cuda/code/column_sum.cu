#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int64_t kChunkRows = 64;  // Of a partial sum, as in the processor's loop.
constexpr int kChunkThreads = 64;
constexpr int kSumThreads = 128;

int64_t ChunksOf(int64_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}

// A thread adds N columns of a chunk of rows, from the first to the last.
template <typename T, int N>
__global__ void AddRows(const T* dy,
                        const T* x,
                        const float* mean,
                        const float* rstd,
                        float* parts,
                        int64_t rows,
                        int64_t dim) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t packs = dim / N;
  const int64_t chunk = index / packs;
  const int64_t column = index % packs * N;
  const int64_t first = chunk * kChunkRows;
  const int64_t end = first + kChunkRows < rows ? first + kChunkRows : rows;
  if (first >= rows) {
    return;
  }
  float sum[N] = {};
  for (int64_t row = first; row < end; ++row) {
    float d[N];
    Load<T, N>(dy + row * dim + column, d);
    if (x != nullptr) {
      float v[N];
      Load<T, N>(x + row * dim + column, v);
      const float m = mean != nullptr ? mean[row] : 0.0F;
      const float r = rstd[row];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        d[j] *= (v[j] - m) * r;
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum[j] += d[j];
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    parts[chunk * dim + column + j] = sum[j];  // Which may lie anywhere in a larger sum.
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

int64_t ColumnSumScratch(int64_t rows) {
  return rows > kChunkRows ? ChunksOf(rows) : 0;
}

void ColumnSum(const RowShape& shape,
               const void* dy,
               const void* x,
               const float* mean,
               const float* rstd,
               float* scratch,
               float* sums,
               Stream stream) {
  const int64_t chunks = ChunksOf(shape.rows);
  float* const parts = chunks > 1 ? scratch : sums;
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    const int64_t count = chunks * (shape.dim / N);
    AddRows<T, N><<<BlocksFor(count, kChunkThreads), kChunkThreads, 0, stream>>>(
        As<T>(dy), As<T>(x), mean, rstd, parts, shape.rows, shape.dim);
  });
  if (chunks > 1) {
    AddParts<<<BlocksFor(shape.dim, kSumThreads), kSumThreads, 0, stream>>>(scratch, sums, chunks,
                                                                            shape.dim);
  }
}

}  // namespace heddle::runtime::cuda
