// Tiles of causal attention: 64 rows of one head times 64 rows of another, in the memory of a block.
#pragma once

#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {

constexpr int kTile = 64;
constexpr int kSide = 16;  // A block is a square of threads; each has kOwn x kOwn of a tile.
constexpr int kOwn = kTile / kSide;  // At distances of kSide.
constexpr int kThreads = kSide * kSide;
constexpr int kDepth = 32;  // Of two factors, what is in the block's memory at a time.
constexpr int kPack = 4;    // Numbers that are read from there at once.
// Rows there are longer than what they hold, so that threads read from different banks.
constexpr int kDepthStride = kDepth + kPack;
constexpr int kTileStride = kTile + kPack;

struct alignas(sizeof(float) * kPack) Memory {
  float factors[2 * kTile * kDepthStride];
  float weights[kTile * kTileStride];
};

// The rows of one head, as fp32; 0 beyond them.
template <typename T>
struct Head {
  const T* data;
  int64_t stride;
  int64_t length;
  int64_t dim;

  __device__ float At(int64_t row, int64_t column) const {
    return row < length && column < dim ? Widened(data[row * stride + column]) : 0.0F;
  }
};

template <typename T>
__device__ Head<T> HeadOf(
    const T* data, const HeadShape& shape, int64_t heads, int64_t sample, int64_t head) {
  return {data + (sample * shape.length * heads + head) * shape.head_dim, heads * shape.head_dim,
          shape.length, shape.head_dim};
}

__device__ inline int X() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ inline int Y() {
  return static_cast<int>(threadIdx.x) / kSide;
}
__device__ inline float SideMax(float value) {
#pragma unroll
  for (int offset = kSide / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  return value;
}
__device__ inline float SideSum(float value) {
#pragma unroll
  for (int offset = kSide / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
  }
  return value;
}

// sums[i][j] = row (first_a + Y + i kSide) of a times row (first_b + X + j kSide) of b.
template <typename T>
__device__ void Multiply(const Head<T>& a,
                         int64_t first_a,
                         const Head<T>& b,
                         int64_t first_b,
                         Memory& memory,
                         float (&sums)[kOwn][kOwn]) {
#pragma unroll
  for (int i = 0; i < kOwn * kOwn; ++i) {
    sums[i / kOwn][i % kOwn] = 0;
  }
  const float* const left = memory.factors + Y() * kDepthStride;
  const float* const right = memory.factors + (kTile + X()) * kDepthStride;
  for (int64_t depth = 0; depth < a.dim; depth += kDepth) {
    __syncthreads();  // The memory may still be read for the product before.
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int row = i / kDepth;
      const int column = i % kDepth;
      float* const to = memory.factors + row * kDepthStride + column;
      to[0] = a.At(first_a + row, depth + column);
      to[kTile * kDepthStride] = b.At(first_b + row, depth + column);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += kPack) {
      float l[kOwn][kPack];
      float r[kOwn][kPack];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        Load<float, kPack>(left + i * kSide * kDepthStride + k, l[i]);
        Load<float, kPack>(right + i * kSide * kDepthStride + k, r[i]);
      }
#pragma unroll
      for (int i = 0; i < kOwn * kOwn * kPack; ++i) {
        const int row = i / kPack / kOwn;
        const int column = i / kPack % kOwn;
        sums[row][column] += l[row][i % kPack] * r[column][i % kPack];
      }
    }
  }
}

// Keeps a tile for AddWeighted.
__device__ inline void Keep(const float (&tile)[kOwn][kOwn], Memory& memory) {
  __syncthreads();  // The tile before may still be read.
#pragma unroll
  for (int i = 0; i < kOwn * kOwn; ++i) {
    const int row = Y() + i / kOwn * kSide;
    memory.weights[row * kTileStride + X() + i % kOwn * kSide] = tile[i / kOwn][i % kOwn];
  }
}

// The column of a head that a thread has in sums[][j]: packs of columns, kSide of them side by side.
__device__ inline int ColumnOf(int j) {
  return (j / kPack * kSide + X()) * kPack + j % kPack;
}

// sums[i][j] += row (Y + i kSide) of the kept tile times column ColumnOf(j) of b's rows from `first`.
template <typename T, int kColumns>
__device__ void AddWeighted(const Head<T>& b,
                            int64_t first,
                            Memory& memory,
                            float (&sums)[kOwn][kColumns]) {
  constexpr int kDim = kColumns * kSide;
  static_assert(kDepth * kDim <= 2 * kTile * kDepthStride, "the rows fit");
  for (int from = 0; from < kTile; from += kDepth) {
    __syncthreads();
    for (int i = threadIdx.x; i < kDepth * kDim; i += kThreads) {
      memory.factors[i] = b.At(first + from + i / kDim, i % kDim);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += kPack) {
      float w[kOwn][kPack];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        Load<float, kPack>(memory.weights + (Y() + i * kSide) * kTileStride + from + k, w[i]);
      }
#pragma unroll
      for (int j = 0; j < kColumns * kPack; j += kPack) {
        const int row = j / kColumns;
        const int column = j % kColumns;
        float r[kPack];
        Load<float, kPack>(memory.factors + (k + row) * kDim + ColumnOf(column), r);
#pragma unroll
        for (int i = 0; i < kOwn * kPack; ++i) {
          sums[i / kPack][column + i % kPack] += w[i / kPack][row] * r[i % kPack];
        }
      }
    }
  }
}

// Writes a thread's sums of one row, times `factor`, to that row of a head.
template <typename T, int kColumns>
__device__ void Write(const float (&sums)[kColumns], float factor, T* to, int64_t dim) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    if (ColumnOf(j) < dim) {
      to[ColumnOf(j)] = Narrowed<T>(sums[j] * factor);
    }
  }
}

// What a block computes: a tile of a head, of queries or of keys. Blocks with the most to do come
// first: those of the last queries and of the first keys.
struct Place {
  int64_t first;
  int64_t sample;
  int64_t head;
};
inline int64_t Tiles(int64_t length) {
  return (length + kTile - 1) / kTile;
}
__device__ inline Place PlaceOf(const HeadShape& shape, int64_t heads) {
  const int64_t in_tile = shape.batch * heads;
  const int64_t block = blockIdx.x;
  return {block / in_tile * kTile, block % in_tile / heads, block % heads};
}
__device__ inline Place LastPlaceOf(const HeadShape& shape) {
  Place place = PlaceOf(shape, shape.heads);
  place.first = (shape.length - 1) / kTile * kTile - place.first;
  return place;
}

}  // namespace heddle::runtime::cuda
