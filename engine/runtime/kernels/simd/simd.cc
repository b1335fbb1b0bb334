#include "engine/runtime/kernels/simd/simd.h"

#include <cstdlib>

#include "engine/runtime/kernels/simd/loops/table.h"

namespace heddle::simd {
namespace {

enum class Set { kBaseline, kAvx2, kAvx512 };

bool Has([[maybe_unused]] Set set) {
#ifdef HEDDLE_SIMD_HAS_avx2
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                    __builtin_cpu_supports("bmi2") != 0;
  const bool avx512 =
      avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0;
  switch (set) {
    case Set::kAvx512:
      return avx512;
    case Set::kAvx2:
      return avx2;
    case Set::kBaseline:
      break;
  }
  return true;
#else
  return set == Set::kBaseline;
#endif
}

std::string_view Name(Set set) {
  return set == Set::kAvx512 ? "avx512" : set == Set::kAvx2 ? "avx2" : "baseline";
}

Set Choose() {
  // Read once, before any kernel runs, by the one initialiser of Active().
  const char* wanted =
      std::getenv("HEDDLE_SIMD");  // NOLINT(concurrency-mt-unsafe): nothing sets it.
  for (const Set set : {Set::kAvx512, Set::kAvx2, Set::kBaseline}) {
    if (Has(set) && (wanted == nullptr || Name(set) == wanted)) {
      return set;
    }
  }
  return Has(Set::kAvx512) ? Set::kAvx512 : Has(Set::kAvx2) ? Set::kAvx2 : Set::kBaseline;
}

Set Active() {
  static const Set active = Choose();
  return active;
}

#define HEDDLE_SIMD_FILL_ALL(set) \
  do {                            \
    set::FillNorms(table);        \
    set::FillElementwise(table);  \
    set::FillLoss(table);         \
    set::FillAttention(table);    \
  } while (false)

template <typename T>
LoopTable<T> MakeLoops() {
  LoopTable<T> table{};
#ifdef HEDDLE_SIMD_HAS_avx2
  if (Active() == Set::kAvx512) {
    HEDDLE_SIMD_FILL_ALL(avx512);
    return table;
  }
  if (Active() == Set::kAvx2) {
    HEDDLE_SIMD_FILL_ALL(avx2);
    return table;
  }
#endif
  HEDDLE_SIMD_FILL_ALL(baseline);
  return table;
}

template <typename M>
OptimizerTable<M> MakeOptimizers() {
  OptimizerTable<M> table{};
#ifdef HEDDLE_SIMD_HAS_avx2
  if (Active() == Set::kAvx512) {
    avx512::FillOptimizer(table);
    return table;
  }
  if (Active() == Set::kAvx2) {
    avx2::FillOptimizer(table);
    return table;
  }
#endif
  baseline::FillOptimizer(table);
  return table;
}

}  // namespace

std::string_view ActiveSet() {
  return Name(Active());
}

bool HasFastBf16Products() {
  static const bool has = Has(Set::kAvx512);
  return has;
}

int64_t AttentionScratch(int64_t length, int64_t head_dim) {
  constexpr int64_t kBlockRows = 32;
  const int64_t columns = (length + 63) / 64 * 64;
  const int64_t dim = (head_dim + 15) / 16 * 16;
  // Six arrays of [T, D], three of [M, D] and two of [M, T], as loops/attention.cc cuts them.
  return 6 * columns * dim + 3 * kBlockRows * dim + 2 * kBlockRows * columns;
}

template <typename T>
const LoopTable<T>& Loops() {
  static const LoopTable<T> table = MakeLoops<T>();
  return table;
}
template const LoopTable<float>& Loops<float>();
template const LoopTable<Bf16>& Loops<Bf16>();
template const LoopTable<double>& Loops<double>();

template <typename M>
const OptimizerTable<M>& Optimizers() {
  static const OptimizerTable<M> table = MakeOptimizers<M>();
  return table;
}
template const OptimizerTable<float>& Optimizers<float>();
template const OptimizerTable<double>& Optimizers<double>();

}  // namespace heddle::simd
