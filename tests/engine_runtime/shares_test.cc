/// \file
/// Every kernel computes what the dense evaluator does, and every sharding rule holds for it: a
/// share gives what it has of the whole (tests/support/graph/sharding.h). In fp64, and both forms
/// of each kernel.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/runtime/kernel_registry.h"
#include "tests/engine_runtime/eager.h"
#include "tests/support/graph/sharding.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using heddle::testing::DenseContext;
using heddle::testing::DenseTensor;
using heddle::testing::Example;
using heddle::testing::Examples;
using heddle::testing::Name;
using heddle::testing::OperatorCall;
using heddle::testing::RandomCall;
using heddle::testing::RulesOf;
using heddle::testing::RunDensely;
using heddle::testing::TestSeed;
using heddle::testing::Violation;

at::Tensor FromDense(const DenseTensor& dense, DType dtype) {
  at::Tensor values = at::empty(dense.shape, at::TensorOptions(at::kDouble));
  std::copy(dense.values.begin(), dense.values.end(), values.data_ptr<double>());
  return dtype == DType::kI32 ? values.to(at::kInt) : values;
}

DenseTensor ToDense(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  DenseTensor dense(Shape(values.sizes().begin(), values.sizes().end()));
  std::copy_n(values.data_ptr<double>(), values.numel(), dense.values.begin());
  return dense;
}

std::vector<DenseTensor> RunInFp64(const OperatorCall& call, const DenseContext& context) {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(FromDense(call.inputs[i], call.types[i].dtype));
  }
  std::vector<DenseTensor> outputs;
  for (const at::Tensor& output : RunKernel(
           call.op, call.attributes, inputs,
           {.seed = context.seed, .step = context.step, .first_sample = context.first_sample})) {
    outputs.push_back(ToDense(output));
  }
  return outputs;
}

class SharesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { PreferPlainAten(GetParam()); }
  void TearDown() override { PreferPlainAten(false); }
};

// Dropout's mask is the kernel's own function of the same coordinates.
TEST_P(SharesTest, KernelsEqualTheDenseEvaluator) {
  Random random(TestSeed());
  for (const Example& example : Examples()) {
    if (example.op == "dropout") {
      continue;
    }
    const OperatorCall call = RandomCall(example, random);
    const auto actual = RunInFp64(call, {});
    const auto expected = RunDensely(call, {});
    ASSERT_EQ(actual.size(), expected.size()) << example.op;
    for (size_t o = 0; o < expected.size(); ++o) {
      ASSERT_EQ(actual[o].shape, expected[o].shape) << example.op;
      for (size_t e = 0; e < expected[o].values.size(); ++e) {
        EXPECT_NEAR(actual[o].values[e], expected[o].values[e],
                    1e-9 * (1 + std::abs(expected[o].values[e])))
            << example.op << example.attributes.ToString() << " output " << o << " element " << e;
      }
    }
  }
}

TEST_P(SharesTest, EveryRuleHolds) {
  Random random(TestSeed());
  for (const Example& example : Examples()) {
    for (const graph::ShardingRule& rule : RulesOf(example)) {
      for (int round = 0; round < 4; ++round) {
        EXPECT_EQ(Violation(RandomCall(example, random), rule, RunInFp64, random), "")
            << example.op << example.attributes.ToString() << ": " << Name(rule);
      }
    }
  }
}

// A sum with the row of another share has the row's own bits, those of -0.0 too.
TEST_P(SharesTest, AnothersRowChangesNoBitOfTheSum) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor weight = at::tensor({-0.0, 0.0, 1.5, -2.0}).view({2, 2}).to(type);
    const at::Tensor tokens = at::tensor({0, 1}, at::TensorOptions(at::kInt)).view({1, 2});
    const at::Tensor whole = RunKernel("embedding", {}, {tokens, weight})[0];
    at::Tensor sum;
    for (const int64_t row : {0, 1}) {
      const at::Tensor share = weight.narrow(0, row, 1).contiguous();
      const at::Tensor y = RunKernel("embedding", {{"first_row", row}}, {tokens, share})[0];
      sum = sum.defined() ? sum + y : y;
    }
    EXPECT_TRUE(at::equal(sum, whole));
    EXPECT_TRUE(at::equal(at::signbit(sum), at::signbit(whole)));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SharesTest, ::testing::Values(false, true), [](const auto& form) {
  return std::string(form.param ? "PlainAten" : "Loops");
});

}  // namespace
}  // namespace heddle::runtime::testing
