// Causal attention in tiles of 64 queries by 64 keys, of which nothing but the result reaches memory
// (Dao et al. 2022, arXiv:2205.14135). A block has one tile of one result and adds what the others
// give it one after another, so that no order is left to chance: the backward pass has a kernel for
// the keys and values, and one for the queries, which each compute the scores again.
#include <type_traits>

#include "engine/runtime/kernels/cuda/code/attention_tiles.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int64_t kNarrowHeads = 64;

template <typename T, int kColumns>
__global__ void Forward(
    const T* q, const T* k, const T* v, T* o, float* lse, HeadShape shape, float scale) {
  __shared__ Memory memory;
  const Place place = LastPlaceOf(shape);
  const int64_t kv = (shape.before + place.head) / shape.group;
  const Head<T> queries = HeadOf(q, shape, shape.heads, place.sample, place.head);
  const Head<T> keys = HeadOf(k, shape, shape.kv_heads, place.sample, kv);
  const Head<T> values = HeadOf(v, shape, shape.kv_heads, place.sample, kv);
  float out[kOwn][kColumns] = {};
  float total[kOwn] = {};
  float top[kOwn];
  for (float& value : top) {
    value = -INFINITY;
  }
  for (int64_t key = 0; key <= place.first; key += kTile) {
    float s[kOwn][kOwn];
    Multiply(queries, place.first, keys, key, memory, s);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t last = place.first + Y() + i * kSide - key - X();  // It reads no later key.
      float most = top[i];
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        s[i][j] *= scale;
        most = j * kSide <= last ? fmaxf(most, s[i][j]) : most;
      }
      most = SideMax(most);  // Without what is not a number; its exponential is none either.
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        s[i][j] = j * kSide <= last ? expf(s[i][j] - most) : 0.0F;
        sum += s[i][j];
      }
      const float rest = expf(top[i] - most);
      total[i] = total[i] * rest + SideSum(sum);
      top[i] = most;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        out[i][j] *= rest;
      }
    }
    Keep(s, memory);
    AddWeighted(values, key, memory, out);
  }
  T* const to = o + (queries.data - q);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t row = place.first + Y() + i * kSide;
    if (row < shape.length) {
      Write(out[i], 1.0F / total[i], to + row * queries.stride, shape.head_dim);
      if (X() == 0) {
        lse[(place.sample * shape.heads + place.head) * shape.length + row] =
            top[i] + logf(total[i]);
      }
    }
  }
}

// delta = the sum of dout * o over each head's columns: [batch, heads, length], a block each.
template <typename T>
__global__ void Deltas(const T* dout, const T* o, float* delta, HeadShape shape) {
  const int64_t at = blockIdx.x;
  const int64_t row = at % shape.length;
  const int64_t head = at / shape.length % shape.heads;
  const int64_t sample = at / shape.length / shape.heads;
  const int64_t first = ((sample * shape.length + row) * shape.heads + head) * shape.head_dim;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < shape.head_dim; i += blockDim.x) {
    sum += Widened(dout[first + i]) * Widened(o[first + i]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    delta[at] = sum;
  }
}

template <typename T, int kColumns>
__global__ void QueryGradient(const T* dout,
                              const T* q,
                              const T* k,
                              const T* v,
                              const float* lse,
                              const float* delta,
                              T* dq,
                              HeadShape shape,
                              float scale) {
  __shared__ Memory memory;
  const Place place = LastPlaceOf(shape);
  const int64_t kv = (shape.before + place.head) / shape.group;
  const Head<T> queries = HeadOf(q, shape, shape.heads, place.sample, place.head);
  const Head<T> douts = HeadOf(dout, shape, shape.heads, place.sample, place.head);
  const Head<T> keys = HeadOf(k, shape, shape.kv_heads, place.sample, kv);
  const Head<T> values = HeadOf(v, shape, shape.kv_heads, place.sample, kv);
  const int64_t rows = (place.sample * shape.heads + place.head) * shape.length;
  float sums[kOwn][kColumns] = {};
  for (int64_t key = 0; key <= place.first; key += kTile) {
    float s[kOwn][kOwn];
    float d[kOwn][kOwn];
    Multiply(queries, place.first, keys, key, memory, s);
    Multiply(douts, place.first, values, key, memory, d);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t row = place.first + Y() + i * kSide;
      const bool is_row = row < shape.length;
      const float l = is_row ? lse[rows + row] : 0.0F;
      const float mean = is_row ? delta[rows + row] : 0.0F;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const bool reads = is_row && key + X() + j * kSide <= row;
        s[i][j] = reads ? expf(s[i][j] * scale - l) * (d[i][j] - mean) : 0.0F;
      }
    }
    Keep(s, memory);
    AddWeighted(keys, key, memory, sums);
  }
  T* const to = dq + (queries.data - q);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t row = place.first + Y() + i * kSide;
    if (row < shape.length) {
      Write(sums[i], scale, to + row * queries.stride, shape.head_dim);
    }
  }
}

// Rows of its tiles are keys, columns are queries.
template <typename T, int kColumns>
__global__ void KeyGradient(const T* dout,
                            const T* q,
                            const T* k,
                            const T* v,
                            const float* lse,
                            const float* delta,
                            T* dk,
                            T* dv,
                            HeadShape shape,
                            float scale) {
  __shared__ Memory memory;
  const Place place = PlaceOf(shape, shape.kv_heads);
  const Head<T> keys = HeadOf(k, shape, shape.kv_heads, place.sample, place.head);
  const Head<T> values = HeadOf(v, shape, shape.kv_heads, place.sample, place.head);
  const int64_t before = place.head * shape.group - shape.before;
  const int64_t end = before + shape.group < shape.heads ? before + shape.group : shape.heads;
  float key_sums[kOwn][kColumns] = {};
  float value_sums[kOwn][kColumns] = {};
  for (int64_t head = before > 0 ? before : 0; head < end; ++head) {
    const Head<T> queries = HeadOf(q, shape, shape.heads, place.sample, head);
    const Head<T> douts = HeadOf(dout, shape, shape.heads, place.sample, head);
    const int64_t rows = (place.sample * shape.heads + head) * shape.length;
    for (int64_t query = place.first; query < shape.length; query += kTile) {
      float s[kOwn][kOwn];
      float d[kOwn][kOwn];
      Multiply(keys, place.first, queries, query, memory, s);
      Multiply(values, place.first, douts, query, memory, d);
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int64_t row = query + X() + j * kSide;
        const bool is_row = row < shape.length;
        const float l = is_row ? lse[rows + row] : 0.0F;
        const float mean = is_row ? delta[rows + row] : 0.0F;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          const bool reads = is_row && place.first + Y() + i * kSide <= row;
          s[i][j] = reads ? expf(s[i][j] * scale - l) : 0.0F;
          d[i][j] = reads ? s[i][j] * (d[i][j] - mean) : 0.0F;
        }
      }
      Keep(s, memory);
      AddWeighted(douts, query, memory, value_sums);
      Keep(d, memory);
      AddWeighted(queries, query, memory, key_sums);
    }
  }
  const int64_t offset = keys.data - k;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t row = place.first + Y() + i * kSide;
    if (row < shape.length) {
      Write(key_sums[i], scale, dk + offset + row * keys.stride, shape.head_dim);
      Write(value_sums[i], 1.0F, dv + offset + row * keys.stride, shape.head_dim);
    }
  }
}

// Calls body with a value of the type and the number of columns that a thread has of a head.
template <typename Body>
void WithHeads(const HeadShape& shape, const Body& body) {
  WithFormat(shape.type, false, [&](auto format) {
    if (shape.head_dim <= kNarrowHeads) {
      body(format, std::integral_constant<int, kNarrowHeads / kSide>());
    } else {
      body(format, std::integral_constant<int, kMostHeadDim / kSide>());
    }
  });
}

}  // namespace

void Attention(const HeadShape& shape,
               const void* q,
               const void* k,
               const void* v,
               void* o,
               float* lse,
               Stream stream) {
  const float scale = 1.0F / sqrtf(static_cast<float>(shape.head_dim));
  const int64_t blocks = Tiles(shape.length) * shape.batch * shape.heads;
  WithHeads(shape, [&](auto format, auto columns) {
    using T = typename decltype(format)::Value;
    constexpr int kColumns = decltype(columns)::value;
    Forward<T, kColumns><<<BlocksFor(blocks, 1), kThreads, 0, stream>>>(
        As<T>(q), As<T>(k), As<T>(v), As<T>(o), lse, shape, scale);
  });
}

void AttentionGradient(const HeadShape& shape,
                       const void* dout,
                       const void* q,
                       const void* k,
                       const void* v,
                       const void* o,
                       const float* lse,
                       float* delta,
                       void* dq,
                       void* dk,
                       void* dv,
                       Stream stream) {
  const float scale = 1.0F / sqrtf(static_cast<float>(shape.head_dim));
  const int64_t rows = shape.batch * shape.heads * shape.length;
  const int64_t tiles = Tiles(shape.length) * shape.batch;
  WithHeads(shape, [&](auto format, auto columns) {
    using T = typename decltype(format)::Value;
    constexpr int kColumns = decltype(columns)::value;
    Deltas<T><<<BlocksFor(rows, 1), kWarp, 0, stream>>>(As<T>(dout), As<T>(o), delta, shape);
    QueryGradient<T, kColumns><<<BlocksFor(tiles * shape.heads, 1), kThreads, 0, stream>>>(
        As<T>(dout), As<T>(q), As<T>(k), As<T>(v), lse, delta, As<T>(dq), shape, scale);
    KeyGradient<T, kColumns><<<BlocksFor(tiles * shape.kv_heads, 1), kThreads, 0, stream>>>(
        As<T>(dout), As<T>(q), As<T>(k), As<T>(v), lse, delta, As<T>(dk), As<T>(dv), shape, scale);
  });
}

}  // namespace heddle::runtime::cuda
