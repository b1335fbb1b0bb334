// AdamW, the sum of squares and the addition of gradients. Every instruction set gives the same bits,
// because workers that hold the same parameters compare their state. So the compiler may join no
// product and sum by itself (../CMakeLists.txt): what is rounded once is FmaOfEach.
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/loops/vector.h"

namespace heddle::simd::HEDDLE_SIMD_SET {
namespace {

template <typename M>
void AdamW(M* master,
           M* exp_avg,
           M* exp_avg_sq,
           const M* gradient,
           Bf16* bf16,
           M* same,
           int64_t count,
           const AdamWFactors& factors) {
  const M clip = static_cast<M>(factors.clip);
  const Vector<M> decay = Splat(static_cast<M>(factors.decay));
  const Vector<M> beta1 = Splat(static_cast<M>(factors.beta1));
  const Vector<M> beta2 = Splat(static_cast<M>(factors.beta2));
  const M rest1 = static_cast<M>(1 - factors.beta1);
  const M rest2 = static_cast<M>(1 - factors.beta2);
  const M rate = static_cast<M>(factors.rate);
  const Vector<M> root = Splat(static_cast<M>(factors.root));
  const Vector<M> epsilon = Splat(static_cast<M>(factors.epsilon));
  Each<M>(count, [&](int64_t i, auto access) {
    const Vector<M> g = access.Get(gradient + i) * clip;
    const Vector<M> m = FmaOfEach(access.Get(exp_avg + i), beta1, g * rest1);
    const Vector<M> v = FmaOfEach(access.Get(exp_avg_sq + i), beta2, g * g * rest2);
    const Vector<M> denominator = FmaOfEach(RootOfEach<M>(v), root, epsilon);
    const Vector<M> value = FmaOfEach(access.Get(master + i), decay, -(rate * (m / denominator)));
    access.Put(exp_avg + i, m);
    access.Put(exp_avg_sq + i, v);
    access.Put(master + i, value);
    if (same != nullptr) {
      access.Put(same + i, value);
    }
    if constexpr (sizeof(M) == sizeof(float)) {
      if (bf16 != nullptr) {
        access.Put(bf16 + i, value);
      }
    }
  });
}

HEDDLE_INLINE Vector<double> Doubles(const float* at) {
  using Part = float __attribute__((vector_size(32)));
  Part values;
  __builtin_memcpy(&values, at, sizeof values);
  return __builtin_convertvector(values, Vector<double>);
}
HEDDLE_INLINE Vector<double> Doubles(const double* at) {
  return Load(at);
}

template <typename M>
double SumOfSquares(const M* values, int64_t count) {
  Vector<double> sums{};
  int64_t i = 0;
  for (; i + kLanes<double> <= count; i += kLanes<double>) {
    const Vector<double> value = Doubles(values + i);
    sums += value * value;
  }
  double total = Sum<double>(sums);
  for (; i < count; ++i) {
    total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return total;
}

template <typename M>
void Fold(M* left, const M* right, int64_t count) {
  Each<M>(count, [&](int64_t i, auto access) {
    access.Put(left + i, access.Get(left + i) + access.Get(right + i));
  });
}

}  // namespace

template <typename M>
void FillOptimizer(OptimizerTable<M>& table) {
  table.adamw = AdamW<M>;
  table.sum_of_squares = SumOfSquares<M>;
  table.fold = Fold<M>;
}

template void FillOptimizer<float>(OptimizerTable<float>&);
template void FillOptimizer<double>(OptimizerTable<double>&);

}  // namespace heddle::simd::HEDDLE_SIMD_SET
