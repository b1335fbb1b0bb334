// Causal attention of one key/value head and its group of query heads, in blocks of query rows: the
// scores of a block fit in the cache, so nothing of size T x T reaches memory, and keys after the
// block are never touched (Dao et al. 2022, arXiv:2205.14135; the softmax of a row is not split,
// because a whole row of a block of 32 queries fits in the second-level cache up to T = 8192).
//
// Everything is packed into the wide type first. Legend: T length, d head size, D = d rounded up to
// a vector, N = T rounded up to kTile columns, M the rows of a block.
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/loops/vector.h"

namespace heddle::simd::HEDDLE_SIMD_SET {
namespace {

template <typename T>
using Wide = typename WideOf<T>::Type;

constexpr int64_t kBlockRows = 32;  ///< M
/// Rows and vectors of one register tile: 16 sums with 32 registers, fewer vectors with 16 narrower
/// ones.
constexpr int kTileRows = 4;
#ifdef __AVX512F__
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 1;
#endif

constexpr int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// c = a b, or c += a b; a is read at a[m * row + k * step], so that it may be transposed; b and c
/// are row-major, `columns` is a multiple of the vector.
template <typename W>
struct Product {
  const W* a;
  int64_t row;
  int64_t step;
  const W* b;
  int64_t b_stride;
  W* c;
  int64_t c_stride;
  int64_t rows;
  int64_t columns;
  int64_t depth;
};

template <typename W, int kRows, int kVectors, bool kAdd>
HEDDLE_INLINE void Tile(const Product<W>& p, int64_t row, int64_t column) {
  Vector<W> sums[kRows][kVectors];
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kVectors; ++n) {
      sums[m][n] = kAdd ? Load(p.c + (row + m) * p.c_stride + column + n * kLanes<W>) : Vector<W>{};
    }
  }
  const W* a = p.a + row * p.row;
  const W* b = p.b + column;
  for (int64_t k = 0; k < p.depth; ++k, a += p.step, b += p.b_stride) {
    Vector<W> values[kVectors];
    for (int n = 0; n < kVectors; ++n) {
      values[n] = Load(b + n * kLanes<W>);
    }
    for (int m = 0; m < kRows; ++m) {
      const Vector<W> factor = Splat(a[m * p.row]);
      for (int n = 0; n < kVectors; ++n) {
        sums[m][n] += factor * values[n];
      }
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kVectors; ++n) {
      Store(p.c + (row + m) * p.c_stride + column + n * kLanes<W>, sums[m][n]);
    }
  }
}

template <typename W, int kVectors, bool kAdd>
HEDDLE_INLINE void Columns(const Product<W>& p, int64_t column) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) {
    Tile<W, kTileRows, kVectors, kAdd>(p, row, column);
  }
  for (; row < p.rows; ++row) {
    Tile<W, 1, kVectors, kAdd>(p, row, column);
  }
}

template <bool kAdd, typename W>
void Multiply(const Product<W>& p) {
  int64_t column = 0;
  for (; column + kTileVectors * kLanes<W> <= p.columns; column += kTileVectors * kLanes<W>) {
    Columns<W, kTileVectors, kAdd>(p, column);
  }
  for (; column < p.columns; column += kLanes<W>) {
    Columns<W, 1, kAdd>(p, column);
  }
}

/// [rows, d] with a stride, times `scale`, to [rows, D] with zeros behind d.
template <typename T, typename W = Wide<T>>
void Pack(const T* from, int64_t stride, int64_t rows, int64_t dim, W scale, W* to) {
  const int64_t padded = RoundUp(dim, kLanes<W>);
  for (int64_t r = 0; r < rows; ++r) {
    Each<W>(dim, [&](int64_t i, auto access) {
      Store(to + r * padded + i, access.Get(from + r * stride + i) * scale);
    });
  }
}

/// The packed [T, D] as [D, N], zeros behind T.
template <typename W>
void Transpose(const W* from, int64_t rows, int64_t columns, int64_t to_stride, W* to) {
  constexpr int64_t kBlock = 16;
  for (int64_t r0 = 0; r0 < to_stride; r0 += kBlock) {
    const int64_t r1 = r0 + kBlock < to_stride ? r0 + kBlock : to_stride;
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r) {
        to[c * to_stride + r] = r < rows ? from[r * columns + c] : W{0};
      }
    }
  }
}

template <typename T, typename W = Wide<T>>
void Unpack(
    const W* from, int64_t from_stride, int64_t rows, int64_t dim, W scale, T* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    Each<W>(dim, [&](int64_t i, auto access) {
      access.Put(to + r * stride + i, Load(from + r * from_stride + i) * scale);
    });
  }
}

/// scores[0, valid) := exp(scores - largest), zeros up to `padded`. Returns the sum and sets the
/// largest.
template <typename W>
HEDDLE_INLINE W SoftmaxRow(W* scores, int64_t valid, int64_t padded, W& largest) {
  const int64_t whole = valid / kLanes<W> * kLanes<W>;
  W most = scores[0];
  if (whole > 0) {
    Vector<W> lanes = Load(scores);
    for (int64_t i = kLanes<W>; i < whole; i += kLanes<W>) {
      const Vector<W> value = Load(scores + i);
      lanes = value > lanes ? value : lanes;
    }
    most = Largest<W>(lanes);
  }
  for (int64_t i = whole; i < valid; ++i) {
    most = scores[i] > most ? scores[i] : most;
  }
  for (int64_t i = valid; i < padded; ++i) {
    scores[i] = -__builtin_inff();
  }
  Vector<W> sums{};
  for (int64_t i = 0; i < padded; i += kLanes<W>) {
    const Vector<W> value = Exp(Load(scores + i) - most);
    Store(scores + i, value);
    sums += value;
  }
  largest = most;
  return Sum<W>(sums);
}

/// The scratch's parts; forward uses those up to `out`.
template <typename W>
struct Scratch {
  W* key_transposed;    ///< [D, N]
  W* value;             ///< [T, D]
  W* query;             ///< [M, D]
  W* scores;            ///< [M, N]
  W* out;               ///< [M, D]
  W* key;               ///< [T, D]
  W* value_transposed;  ///< [D, N]
  W* dout;              ///< [M, D]
  W* dscores;           ///< [M, N]
  W* dkey;              ///< [T, D]
  W* dvalue;            ///< [T, D]
};

template <typename W>
Scratch<W> Carve(W* memory, int64_t length, int64_t head_dim) {
  const int64_t dim = RoundUp(head_dim, 16);
  const int64_t columns = RoundUp(length, 64);
  const auto take = [&memory](int64_t count) {
    W* part = memory;
    memory += count;
    return part;
  };
  Scratch<W> s{};
  s.key_transposed = take(dim * columns);
  s.value = take(columns * dim);
  s.query = take(kBlockRows * dim);
  s.scores = take(kBlockRows * columns);
  s.out = take(kBlockRows * dim);
  s.key = take(columns * dim);
  s.value_transposed = take(dim * columns);
  s.dout = take(kBlockRows * dim);
  s.dscores = take(kBlockRows * columns);
  s.dkey = take(columns * dim);
  s.dvalue = take(columns * dim);
  return s;
}

/// Sizes that the blocks of one head share.
template <typename W>
struct Sizes {
  int64_t dim;      ///< D
  int64_t columns;  ///< N
  W scale;

  template <typename T>
  explicit Sizes(const AttentionHead<T>& head)
      : dim(RoundUp(head.head_dim, kLanes<W>)),
        columns(RoundUp(head.length, 64)),
        scale(1 / Root(static_cast<W>(head.head_dim))) {}
};

template <typename T, typename W = Wide<T>>
void ForwardBlock(const AttentionHead<T>& head,
                  const Scratch<W>& s,
                  const Sizes<W>& z,
                  int64_t h,
                  int64_t first) {
  const int64_t rows = first + kBlockRows < head.length ? kBlockRows : head.length - first;
  const int64_t keys = first + rows;
  const int64_t columns = RoundUp(keys, kLanes<W>);
  const int64_t offset = first * head.q_stride + h * head.head_dim;
  Pack(head.q + offset, head.q_stride, rows, head.head_dim, z.scale, s.query);
  Multiply<false, W>(
      {s.query, z.dim, 1, s.key_transposed, z.columns, s.scores, z.columns, rows, columns, z.dim});
  W sums[kBlockRows];
  for (int64_t r = 0; r < rows; ++r) {
    W largest = 0;
    sums[r] = SoftmaxRow(s.scores + r * z.columns, first + r + 1, columns, largest);
    head.lse[h * head.length + first + r] = largest + Log(sums[r]);
  }
  Multiply<false, W>({s.scores, z.columns, 1, s.value, z.dim, s.out, z.dim, rows, z.dim, keys});
  for (int64_t r = 0; r < rows; ++r) {
    Unpack(s.out + r * z.dim, z.dim, 1, head.head_dim, 1 / sums[r],
           head.o + offset + r * head.q_stride, head.q_stride);
  }
}

template <typename T, typename W = Wide<T>>
void Attention(const AttentionHead<T>& head) {
  const Sizes<W> z(head);
  const Scratch<W> s = Carve(head.scratch, head.length, head.head_dim);
  Pack(head.k, head.kv_stride, head.length, head.head_dim, W{1}, s.value);
  Transpose(s.value, head.length, z.dim, z.columns, s.key_transposed);
  Pack(head.v, head.kv_stride, head.length, head.head_dim, W{1}, s.value);
  for (int64_t h = 0; h < head.group; ++h) {
    for (int64_t first = 0; first < head.length; first += kBlockRows) {
      ForwardBlock(head, s, z, h, first);
    }
  }
}

/// scores := P = exp(S - lse), dscores := P * (dP - delta), zeros after the diagonal.
template <typename W>
HEDDLE_INLINE void ScoreGradientRow(
    W* scores, W* dscores, int64_t valid, int64_t padded, W lse, W delta) {
  const int64_t whole = valid / kLanes<W> * kLanes<W>;
  for (int64_t i = valid; i < padded; ++i) {
    scores[i] = -__builtin_inff();
    dscores[i] = 0;
  }
  for (int64_t i = 0; i < (whole < valid ? whole + kLanes<W> : whole); i += kLanes<W>) {
    const Vector<W> p = Exp(Load(scores + i) - lse);
    Store(scores + i, p);
    Store(dscores + i, p * (Load(dscores + i) - delta));
  }
  for (int64_t i = RoundUp(valid, kLanes<W>); i < padded; ++i) {
    scores[i] = 0;
  }
}

template <typename T, typename W = Wide<T>>
void BackwardBlock(const AttentionHead<T>& head,
                   const Scratch<W>& s,
                   const Sizes<W>& z,
                   int64_t h,
                   int64_t first) {
  const int64_t rows = first + kBlockRows < head.length ? kBlockRows : head.length - first;
  const int64_t keys = first + rows;
  const int64_t columns = RoundUp(keys, kLanes<W>);
  const int64_t offset = first * head.q_stride + h * head.head_dim;
  Pack(head.q + offset, head.q_stride, rows, head.head_dim, z.scale, s.query);
  Pack(head.dout + offset, head.q_stride, rows, head.head_dim, W{1}, s.dout);
  Pack(head.o + offset, head.q_stride, rows, head.head_dim, W{1}, s.out);
  Multiply<false, W>(
      {s.query, z.dim, 1, s.key_transposed, z.columns, s.scores, z.columns, rows, columns, z.dim});
  Multiply<false, W>({s.dout, z.dim, 1, s.value_transposed, z.columns, s.dscores, z.columns, rows,
                      columns, z.dim});
  for (int64_t r = 0; r < rows; ++r) {
    Vector<W> products{};
    for (int64_t i = 0; i < z.dim; i += kLanes<W>) {
      products += Load(s.dout + r * z.dim + i) * Load(s.out + r * z.dim + i);
    }
    ScoreGradientRow(s.scores + r * z.columns, s.dscores + r * z.columns, first + r + 1, columns,
                     head.lse[h * head.length + first + r], Sum<W>(products));
  }
  Multiply<true, W>({s.scores, 1, z.columns, s.dout, z.dim, s.dvalue, z.dim, keys, z.dim, rows});
  Multiply<true, W>({s.dscores, 1, z.columns, s.query, z.dim, s.dkey, z.dim, keys, z.dim, rows});
  Multiply<false, W>({s.dscores, z.columns, 1, s.key, z.dim, s.out, z.dim, rows, z.dim, keys});
  Unpack(s.out, z.dim, rows, head.head_dim, z.scale, head.dq + offset, head.q_stride);
}

template <typename T, typename W = Wide<T>>
void AttentionGradient(const AttentionHead<T>& head) {
  const Sizes<W> z(head);
  const Scratch<W> s = Carve(head.scratch, head.length, head.head_dim);
  Pack(head.v, head.kv_stride, head.length, head.head_dim, W{1}, s.value);
  Transpose(s.value, head.length, z.dim, z.columns, s.value_transposed);
  Pack(head.k, head.kv_stride, head.length, head.head_dim, W{1}, s.key);
  Transpose(s.key, head.length, z.dim, z.columns, s.key_transposed);
  for (int64_t i = 0; i < head.length * z.dim; ++i) {
    s.dkey[i] = 0;
    s.dvalue[i] = 0;
  }
  for (int64_t h = 0; h < head.group; ++h) {
    for (int64_t first = 0; first < head.length; first += kBlockRows) {
      BackwardBlock(head, s, z, h, first);
    }
  }
  Unpack(s.dkey, z.dim, head.length, head.head_dim, W{1}, head.dk, head.kv_stride);
  Unpack(s.dvalue, z.dim, head.length, head.head_dim, W{1}, head.dv, head.kv_stride);
}

}  // namespace

template <typename T>
void FillAttention(LoopTable<T>& table) {
  table.attention = Attention<T>;
  table.attention_gradient = AttentionGradient<T>;
}

HEDDLE_SIMD_FILL(FillAttention);

}  // namespace heddle::simd::HEDDLE_SIMD_SET
