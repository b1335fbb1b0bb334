// Softmax cross entropy, forward and backward.
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/loops/vector.h"

namespace heddle::simd::HEDDLE_SIMD_SET {
namespace {

template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T, typename W = Wide<T>>
void CrossEntropy(
    const T* logits, const int32_t* targets, W* lse, W* losses, int64_t rows, int64_t vocabulary) {
  const int64_t whole = vocabulary / kLanes<W> * kLanes<W>;
  for (int64_t r = 0; r < rows; ++r, logits += vocabulary) {
    W largest = LoadPart(logits, 1)[0];
    if (whole > 0) {
      Vector<W> most = Load(logits);
      for (int64_t i = kLanes<W>; i < whole; i += kLanes<W>) {
        const Vector<W> value = Load(logits + i);
        most = value > most ? value : most;
      }
      largest = Largest<W>(most);
    }
    for (int64_t i = whole; i < vocabulary; ++i) {
      const W value = LoadPart(logits + i, 1)[0];
      largest = value > largest ? value : largest;
    }
    Vector<W> sums{};
    for (int64_t i = 0; i < whole; i += kLanes<W>) {
      sums += Exp(Load(logits + i) - largest);
    }
    W sum = Sum<W>(sums);
    if (whole < vocabulary) {
      const Vector<W> rest = Exp(LoadPart(logits + whole, vocabulary - whole) - largest);
      for (int64_t i = 0; i < vocabulary - whole; ++i) {
        sum += rest[i];
      }
    }
    lse[r] = largest + Log(sum);
    losses[r] = lse[r] - LoadPart(logits + targets[r], 1)[0];
  }
}

template <typename T, typename W = Wide<T>>
void CrossEntropyGradient(const T* logits,
                          const int32_t* targets,
                          const W* lse,
                          T* dlogits,
                          int64_t rows,
                          int64_t vocabulary,
                          int64_t first_row,
                          double scale) {
  const W factor = static_cast<W>(scale);
  for (int64_t r = 0; r < rows; ++r, logits += vocabulary, dlogits += vocabulary) {
    const W norm = lse[r];
    Each<W>(vocabulary, [&](int64_t i, auto access) {
      access.Put(dlogits + i, Exp(access.Get(logits + i) - norm) * factor);
    });
    const int64_t target = targets[r] - first_row;
    if (target >= 0 && target < vocabulary) {
      const Vector<W> chosen = (Exp(LoadPart(logits + target, 1) - norm) - 1) * factor;
      StorePart(dlogits + target, chosen, 1);
    }
  }
}

}  // namespace

template <typename T>
void FillLoss(LoopTable<T>& table) {
  table.cross_entropy = CrossEntropy<T>;
  table.cross_entropy_gradient = CrossEntropyGradient<T>;
}

HEDDLE_SIMD_FILL(FillLoss);

}  // namespace heddle::simd::HEDDLE_SIMD_SET
