#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;

// starts[v] is the number of tokens below first + v: the place in the order of the first that has it.
__global__ void FindStarts(
    const int32_t* tokens, int64_t count, int64_t first, int64_t vocabulary, int64_t* starts) {
  const int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (v > vocabulary) {
    return;
  }
  int64_t low = 0;
  int64_t high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (tokens[middle] < first + v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[v] = low;
}

// A thread has N columns of one token.
template <typename T, int N>
__global__ void AddRows(const T* dy,
                        const int64_t* rows,
                        const int64_t* starts,
                        float* dweight,
                        int64_t vocabulary,
                        int64_t dim) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t packs = dim / N;
  const int64_t v = index / packs;
  const int64_t column = index % packs * N;
  if (v >= vocabulary) {
    return;
  }
  const int64_t end = starts[v + 1];
  float sum[N] = {};
  // Several rows are on their way at once, since some tokens are frequent.
#pragma unroll 4
  for (int64_t i = starts[v]; i < end; ++i) {
    float d[N];
    Load<T, N>(dy + rows[i] * dim + column, d);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum[j] += d[j];
    }
  }
  Store<float, N>(dweight + v * dim + column, sum);
}

}  // namespace

void EmbeddingWeightGradient(const RowShape& shape,
                             const void* dy,
                             const SortedTokens& sorted,
                             int64_t first,
                             int64_t vocabulary,
                             int64_t* scratch,
                             float* dweight,
                             Stream stream) {
  FindStarts<<<BlocksFor(vocabulary + 1, kThreads), kThreads, 0, stream>>>(
      sorted.tokens, shape.rows, first, vocabulary, scratch);
  WithFormat(shape.type, FitsPacks(shape.type, shape.dim), [&](auto format) {
    using T = typename decltype(format)::Value;
    constexpr int N = decltype(format)::kPack;
    AddRows<T, N><<<BlocksFor(vocabulary * (shape.dim / N), kThreads), kThreads, 0, stream>>>(
        As<T>(dy), sorted.rows, scratch, dweight, vocabulary, shape.dim);
  });
}

}  // namespace heddle::runtime::cuda
