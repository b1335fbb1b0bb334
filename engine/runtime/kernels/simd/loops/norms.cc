// Root-mean-square and layer norm, forward and backward; sums over columns.
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/loops/vector.h"

namespace heddle::simd::HEDDLE_SIMD_SET {
namespace {

template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T, typename W = Wide<T>>
void RmsNorm(
    const T* x, const W* weight, T* y, W* rstd, int64_t rows, int64_t dim, double epsilon) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    Vector<W> squares{};
    Each<W>(dim, [&](int64_t i, auto access) {
      const Vector<W> value = access.Get(x + i);
      squares += value * value;
    });
    const W factor = 1 / Root(Sum<W>(squares) / static_cast<W>(dim) + static_cast<W>(epsilon));
    rstd[r] = factor;
    Each<W>(dim, [&](int64_t i, auto access) {
      access.Put(y + i, access.Get(x + i) * factor * access.Get(weight + i));
    });
  }
}

template <typename T, typename W = Wide<T>>
void RmsNormInputGradient(
    const T* dy, const T* x, const W* weight, const W* rstd, T* dx, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const W factor = rstd[r];
    Vector<W> products{};
    Each<W>(dim, [&](int64_t i, auto access) {
      products += access.Get(dy + i) * access.Get(weight + i) * access.Get(x + i);
    });
    const W mean = Sum<W>(products) * factor / static_cast<W>(dim);
    Each<W>(dim, [&](int64_t i, auto access) {
      const Vector<W> h = access.Get(dy + i) * access.Get(weight + i);
      access.Put(dx + i, (h - access.Get(x + i) * (factor * mean)) * factor);
    });
  }
}

template <typename T, typename W = Wide<T>>
void LayerNorm(const T* x,
               const W* weight,
               const W* bias,
               T* y,
               W* mean,
               W* rstd,
               int64_t rows,
               int64_t dim,
               double epsilon) {
  const W count = static_cast<W>(dim);
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    Vector<W> sums{};
    Each<W>(dim, [&](int64_t i, auto access) { sums += access.Get(x + i); });
    const W centre = Sum<W>(sums) / count;
    Vector<W> squares{};
    Each<W>(dim / kLanes<W> * kLanes<W>, [&](int64_t i, auto access) {
      const Vector<W> value = access.Get(x + i) - centre;
      squares += value * value;
    });
    W rest = 0;  // Apart: the padding of a partial vector would count as -centre.
    for (int64_t i = dim / kLanes<W> * kLanes<W>; i < dim; ++i) {
      const W value = LoadPart(x + i, 1)[0] - centre;
      rest += value * value;
    }
    const W factor = 1 / Root((Sum<W>(squares) + rest) / count + static_cast<W>(epsilon));
    mean[r] = centre;
    rstd[r] = factor;
    Each<W>(dim, [&](int64_t i, auto access) {
      const Vector<W> n = (access.Get(x + i) - centre) * factor;
      access.Put(y + i, n * access.Get(weight + i) + access.Get(bias + i));
    });
  }
}

template <typename T, typename W = Wide<T>>
void LayerNormInputGradient(const T* dy,
                            const T* x,
                            const W* weight,
                            const W* mean,
                            const W* rstd,
                            T* dx,
                            int64_t rows,
                            int64_t dim) {
  const W count = static_cast<W>(dim);
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const W centre = mean[r];
    const W factor = rstd[r];
    Vector<W> sums{};
    Vector<W> products{};
    Each<W>(dim, [&](int64_t i, auto access) {
      const Vector<W> h = access.Get(dy + i) * access.Get(weight + i);
      sums += h;
      products += h * ((access.Get(x + i) - centre) * factor);
    });
    const W first = Sum<W>(sums) / count;
    const W second = Sum<W>(products) / count;
    Each<W>(dim, [&](int64_t i, auto access) {
      const Vector<W> h = access.Get(dy + i) * access.Get(weight + i);
      const Vector<W> n = (access.Get(x + i) - centre) * factor;
      access.Put(dx + i, (h - first - n * second) * factor);
    });
  }
}

/// One row's addends of ColumnSum at a column.
template <typename T, typename W, typename Access>
HEDDLE_INLINE Vector<W> Addend(
    const T* dy, const T* x, const W* mean, const W* rstd, int64_t r, int64_t at, Access access) {
  const Vector<W> value = access.Get(dy + at);
  if (x == nullptr) {
    return value;
  }
  return value * ((access.Get(x + at) - (mean != nullptr ? mean[r] : W{0})) * rstd[r]);
}

// Rows are summed in blocks of 64, so that an fp32 sum over many rows loses little; the order of a
// column's additions does not depend on the columns of the call. Rows are read in long pieces,
// because a short piece of each row would touch a page a row.
template <typename T, typename W = Wide<T>>
void ColumnSum(const T* dy,
               const T* x,
               const W* mean,
               const W* rstd,
               W* out,
               int64_t rows,
               int64_t dim,
               int64_t begin,
               int64_t end) {
  constexpr int64_t kBlock = 64;
  constexpr int64_t kPiece = 1024;
  for (int64_t column = begin; column < end; column += kPiece) {
    const int64_t count = end - column < kPiece ? end - column : kPiece;
    W totals[kPiece] = {};
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t last = first + kBlock < rows ? first + kBlock : rows;
      W sums[kPiece] = {};
      for (int64_t r = first; r < last; ++r) {
        Each<W>(count, [&](int64_t i, auto access) {
          const Vector<W> value = Addend(dy, x, mean, rstd, r, r * dim + column + i, access);
          Store(sums + i, Load(sums + i) + value);
        });
      }
      for (int64_t i = 0; i < kPiece; i += kLanes<W>) {
        Store(totals + i, Load(totals + i) + Load(sums + i));
      }
    }
    Each<W>(count, [&](int64_t i, auto access) { access.Put(out + column + i, Load(totals + i)); });
  }
}

template <typename T, typename W = Wide<T>>
void EmbeddingGradient(const T* dy,
                       const int32_t* tokens,
                       W* dweight,
                       int64_t rows,
                       int64_t dim,
                       int64_t first_row,
                       int64_t vocabulary,
                       int64_t begin,
                       int64_t end) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = tokens[r] - first_row;
    if (row < 0 || row >= vocabulary) {
      continue;
    }
    W* target = dweight + row * dim + begin;
    const T* source = dy + r * dim + begin;
    Each<W>(end - begin, [&](int64_t i, auto access) {
      access.Put(target + i, access.Get(target + i) + access.Get(source + i));
    });
  }
}

}  // namespace

template <typename T>
void FillNorms(LoopTable<T>& table) {
  table.rms_norm = RmsNorm<T>;
  table.rms_norm_input_gradient = RmsNormInputGradient<T>;
  table.layer_norm = LayerNorm<T>;
  table.layer_norm_input_gradient = LayerNormInputGradient<T>;
  table.column_sum = ColumnSum<T>;
  table.embedding_gradient = EmbeddingGradient<T>;
}

HEDDLE_SIMD_FILL(FillNorms);

}  // namespace heddle::simd::HEDDLE_SIMD_SET
