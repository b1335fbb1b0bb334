/// \file
/// AdamW against its formula written out element by element in double, the sum of squares and the
/// fold.
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/kernel_registry.h"

namespace heddle::runtime {
namespace {

at::Tensor Values(uint64_t seed, int64_t count, at::ScalarType type) {
  Random random(seed);
  at::Tensor values = at::empty({count}, at::TensorOptions(at::kDouble));
  for (int64_t i = 0; i < count; ++i) {
    values.data_ptr<double>()[i] = random.Uniform() * 2 - 1;
  }
  return values.to(type);
}

/// The algorithm's lines as in the paper, one element at a time.
struct Element {
  double value = 0;
  double first = 0;
  double second = 0;

  void Update(double gradient, const AdamWStep& s) {
    const double g = gradient * s.clip_factor;
    value -= s.learning_rate * s.weight_decay * value;
    first = s.beta1 * first + (1 - s.beta1) * g;
    second = s.beta2 * second + (1 - s.beta2) * g * g;
    const double unbiased_first = first / (1 - std::pow(s.beta1, static_cast<double>(s.step)));
    const double unbiased_second = second / (1 - std::pow(s.beta2, static_cast<double>(s.step)));
    value -= s.learning_rate * unbiased_first / (std::sqrt(unbiased_second) + s.epsilon);
  }
};

class OptimizerTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { PreferPlainAten(GetParam()); }
  void TearDown() override { PreferPlainAten(false); }

  void CompareWithFormula(at::ScalarType type, at::ScalarType copy_type, double tolerance) {
    constexpr int64_t kCount = 10007;
    at::Tensor master = Values(1, kCount, type);
    at::Tensor first = at::zeros_like(master);
    at::Tensor second = at::zeros_like(master);
    at::Tensor copy = copy_type == type ? master : master.to(copy_type);
    std::vector<Element> expected(kCount);
    const at::Tensor start = master.to(at::kDouble);
    for (int64_t i = 0; i < kCount; ++i) {
      expected[static_cast<size_t>(i)].value = start.data_ptr<double>()[i];
    }
    for (int64_t step = 1; step <= 5; ++step) {
      const at::Tensor gradient = Values(static_cast<uint64_t>(step) + 10, kCount, type);
      const AdamWStep s{
          .learning_rate = 0.01, .clip_factor = 0.7, .step = step, .weight_decay = 0.1};
      AdamWUpdate(master, first, second, gradient, copy, s);
      const at::Tensor wide = gradient.to(at::kDouble);
      for (int64_t i = 0; i < kCount; ++i) {
        expected[static_cast<size_t>(i)].Update(wide.data_ptr<double>()[i], s);
      }
    }
    const at::Tensor actual = master.to(at::kDouble);
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(actual.data_ptr<double>()[i], expected[static_cast<size_t>(i)].value, tolerance)
          << i;
    }
    EXPECT_TRUE(at::equal(copy, master.to(copy_type)));
  }
};

TEST_P(OptimizerTest, AdamWFollowsTheFormula) {
  CompareWithFormula(at::kDouble, at::kDouble, 1e-14);
  CompareWithFormula(at::kFloat, at::kFloat, 1e-6);
  CompareWithFormula(at::kFloat, at::kBFloat16, 1e-6);
}

TEST_P(OptimizerTest, FoldAdds) {
  at::Tensor left = Values(3, 5001, at::kFloat);
  const at::Tensor right = Values(4, 5001, at::kFloat);
  const at::Tensor expected = left + right;
  FoldInto(left, right);
  EXPECT_TRUE(at::equal(left, expected));
}

TEST_P(OptimizerTest, SumOfSquaresIsExactToDouble) {
  for (const int64_t count : {0, 1, 7, 4096, 4097, 100003}) {
    const at::Tensor values = Values(5, count, at::kFloat);
    const double expected = values.to(at::kDouble).pow(2).sum().item<double>();
    EXPECT_NEAR(SumOfSquares(values), expected, 1e-12 * (1 + expected)) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms,
                         OptimizerTest,
                         ::testing::Values(false, true),
                         [](const auto& form) {
                           return std::string(form.param ? "PlainAten" : "Loops");
                         });

TEST(OptimizerBitsTest, DoNotDependOnThreads) {
  const at::Tensor values = Values(6, 300001, at::kFloat);
  std::vector<double> sums;
  std::vector<at::Tensor> masters;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    sums.push_back(SumOfSquares(values));
    at::Tensor master = values.clone();
    at::Tensor first = at::zeros_like(master);
    at::Tensor second = at::zeros_like(master);
    AdamWUpdate(master, first, second, values, master, {.learning_rate = 0.1});
    masters.push_back(master);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_TRUE(at::equal(masters[0], masters[1]) && at::equal(masters[0], masters[2]));
}

}  // namespace
}  // namespace heddle::runtime
