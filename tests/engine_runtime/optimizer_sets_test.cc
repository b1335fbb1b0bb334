/// \file
/// AdamW, the sum of squares and the fold in the loops of every instruction set that this processor
/// has: the bits of each are those of the formula, one element at a time. Workers compare them.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/kernels/simd/loops/table.h"
#include "engine/runtime/kernels/simd/simd.h"
#include "tests/support/seed.h"

namespace heddle::simd {
namespace {

constexpr int64_t kCount = 10007;  // With a partial vector at the end.

template <typename M>
struct Variant {
  const char* set;
  OptimizerTable<M> table;
};

template <typename M>
std::vector<Variant<M>> Variants() {
  std::vector<Variant<M>> variants;
  OptimizerTable<M> table{};
  baseline::FillOptimizer(table);
  variants.push_back({"baseline", table});
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    avx2::FillOptimizer(table);
    variants.push_back({"avx2", table});
  }
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0) {
    avx512::FillOptimizer(table);
    variants.push_back({"avx512", table});
  }
#endif
  return variants;
}

/// Values of all magnitudes that training has, some of them zero or subnormal.
template <typename M>
std::vector<M> Draw(Random& random, bool positive) {
  std::vector<M> values(kCount);
  for (M& value : values) {
    const double magnitude = std::exp2(random.Uniform() * 60 - 50);
    const double sign = positive || random.Below(2) == 0 ? 1 : -1;
    value = static_cast<M>(random.Below(50) == 0 ? 0 : sign * magnitude);
  }
  values[0] = std::numeric_limits<M>::denorm_min();
  values[1] = std::numeric_limits<M>::min() / 2;
  return values;
}

template <typename M>
struct State {
  std::vector<M> master, first, second;
  std::vector<M> same = std::vector<M>(kCount);
  std::vector<Bf16> bf16 = std::vector<Bf16>(kCount);
};

/// Each sum of a product is rounded once, everything else after each operation.
template <typename M>
void UpdateByFormula(State<M>& state, const std::vector<M>& gradient, const AdamWFactors& f) {
  const M rest1 = static_cast<M>(1 - f.beta1);
  const M rest2 = static_cast<M>(1 - f.beta2);
  for (size_t i = 0; i < state.master.size(); ++i) {
    const M g = gradient[i] * static_cast<M>(f.clip);
    M& m = state.first[i];
    M& v = state.second[i];
    m = std::fma(m, static_cast<M>(f.beta1), g * rest1);
    v = std::fma(v, static_cast<M>(f.beta2), g * g * rest2);
    const M denominator = std::fma(std::sqrt(v), static_cast<M>(f.root), static_cast<M>(f.epsilon));
    const M change = static_cast<M>(f.rate) * (m / denominator);
    state.master[i] = std::fma(state.master[i], static_cast<M>(f.decay), -change);
  }
}

template <typename T>
int64_t UnlikeBits(const std::vector<T>& a, const std::vector<T>& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  }
  return count;
}

template <typename M>
void CompareSets() {
  Random random(heddle::testing::TestSeed());
  const State<M> start{.master = Draw<M>(random, false),
                       .first = Draw<M>(random, false),
                       .second = Draw<M>(random, true)};
  std::array<std::vector<M>, 3> gradients;
  for (auto& gradient : gradients) {
    gradient = Draw<M>(random, false);
  }
  const AdamWFactors factors{.clip = 0.37,
                             .decay = 1 - 3e-4,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .rate = 3e-3,
                             .root = 1.7,
                             .epsilon = 1e-8};
  State<M> expected = start;
  for (const auto& gradient : gradients) {
    UpdateByFormula(expected, gradient, factors);
  }
  std::vector<Bf16> expected_bf16;
  double expected_sum = 0;
  for (const Variant<M>& variant : Variants<M>()) {
    SCOPED_TRACE(variant.set);
    State<M> state = start;
    for (const auto& gradient : gradients) {
      variant.table.adamw(state.master.data(), state.first.data(), state.second.data(),
                          gradient.data(), state.bf16.data(), state.same.data(), kCount, factors);
    }
    EXPECT_EQ(UnlikeBits(state.master, expected.master), 0);
    EXPECT_EQ(UnlikeBits(state.first, expected.first), 0);
    EXPECT_EQ(UnlikeBits(state.second, expected.second), 0);
    EXPECT_EQ(UnlikeBits(state.same, expected.master), 0);
    const double sum = variant.table.sum_of_squares(gradients[0].data(), kCount);
    if (expected_bf16.empty()) {  // The first set is the baseline.
      expected_bf16 = state.bf16;
      expected_sum = sum;
    }
    EXPECT_EQ(UnlikeBits(state.bf16, expected_bf16), 0);
    EXPECT_EQ(sum, expected_sum);
    std::vector<M> folded = gradients[0];
    variant.table.fold(folded.data(), gradients[1].data(), kCount);
    for (size_t i = 0; i < folded.size(); ++i) {
      ASSERT_EQ(folded[i], gradients[0][i] + gradients[1][i]);
    }
  }
}

TEST(OptimizerSetsTest, TheBitsOfEverySetAreThoseOfTheFormula) {
  CompareSets<float>();
}

TEST(OptimizerSetsTest, SoAreThoseOfDoubles) {
  CompareSets<double>();
}

}  // namespace
}  // namespace heddle::simd
