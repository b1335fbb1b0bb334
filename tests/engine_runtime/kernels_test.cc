/// \file
/// Every kernel and every gradient rule: values and gradients in fp64 against libtorch's autograd
/// of an independent composition and against central differences; fp32 and bf16 within their
/// tolerance of fp64; the same bits from other memory and other numbers of threads; both forms of
/// each kernel (its own loops, plain ATen). HEDDLE_TEST_SEED names the first draw of shapes;
/// HEDDLE_SIMD chooses the instruction set.
#include <cstring>
#include <set>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "engine/runtime/kernel_registry.h"
#include "tests/engine_runtime/eager.h"
#include "tests/engine_runtime/kernel_cases.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using heddle::testing::TestSeed;
using heddle::testing::TestSeeds;

constexpr int kDraws = 5;

// Relative to the largest element, or to 0.1 times what the function amplifies rounding by. fp64:
// different orders of addition. fp32: sums of <= 300 terms and a vectorised exp. bf16: two
// roundings of 2^-9 at intermediate values (inputs are bf16 on both sides).
constexpr double kTolerance64 = 1e-11;
constexpr double kTolerance32 = 1e-5;
constexpr double kTolerance16 = 1.5e-2;

at::Tensor RandomValues(Random& random, const InputSpec& spec) {
  at::Tensor values =
      at::empty(spec.shape, at::TensorOptions(spec.limit > 0 ? at::kInt : at::kDouble));
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (spec.limit > 0) {
      values.data_ptr<int32_t>()[i] =
          static_cast<int32_t>(random.Below(static_cast<uint64_t>(spec.limit)));
    } else {
      // Close to normal: the sum of four uniforms, standard deviation 1.
      double sum = random.Uniform() + random.Uniform() + random.Uniform() + random.Uniform() - 2.0;
      values.data_ptr<double>()[i] = sum * std::sqrt(3.0) + spec.mean;
    }
  }
  return values;
}

at::ScalarType InputType(const at::Tensor& input, at::ScalarType compute) {
  if (input.scalar_type() == at::kInt) {
    return at::kInt;
  }
  return input.dim() >= 2 || compute == at::kDouble ? compute : at::kFloat;
}

std::vector<at::Tensor> Cast(const std::vector<at::Tensor>& inputs, at::ScalarType compute) {
  std::vector<at::Tensor> cast;
  for (const at::Tensor& input : inputs) {
    cast.push_back(input.to(InputType(input, compute)));
  }
  return cast;
}

std::vector<at::Tensor> ToDouble(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> cast;
  for (const at::Tensor& input : inputs) {
    cast.push_back(input.scalar_type() == at::kInt ? input : input.to(at::kDouble));
  }
  return cast;
}

void ExpectClose(const at::Tensor& actual,
                 const at::Tensor& expected,
                 double tolerance,
                 double amplification,
                 const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor wide = actual.to(at::kDouble);
  const double scale = std::max(0.1 * amplification, expected.abs().max().item<double>());
  const double error = (wide - expected).abs().max().item<double>() / scale;
  EXPECT_LE(error, tolerance) << what;  // A NaN fails, too.
  EXPECT_FALSE(std::isnan(error)) << what;
}

struct Answers {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

/// Output 0 and gradients of the composition by libtorch's autograd, for these very inputs.
Answers Reference(const KernelCase& kernel_case,
                  const std::vector<at::Tensor>& inputs,
                  const at::Tensor& dy) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : ToDouble(inputs)) {
    leaves.push_back(input.detach().clone());
    if (input.scalar_type() == at::kDouble) {
      leaves.back().requires_grad_();
    }
  }
  const at::Tensor y = kernel_case.reference(leaves);
  y.backward(dy.defined() ? dy.to(at::kDouble) : at::Tensor());
  Answers answers{y.detach(), {}};
  for (const at::Tensor& leaf : leaves) {
    answers.gradients.push_back(leaf.grad());
  }
  return answers;
}

Answers Heddle(const KernelCase& kernel_case,
               const std::vector<at::Tensor>& inputs,
               const at::Tensor& dy) {
  EagerNode node(kernel_case.op, kernel_case.attributes, inputs);
  Answers answers{node.Outputs()[0], {}};
  answers.gradients = node.Backward(dy);
  return answers;
}

/// The gradient of output 0, in the compute type; undefined for the loss.
at::Tensor DrawOutputGradient(Random& random,
                              const KernelCase& kernel_case,
                              const std::vector<at::Tensor>& inputs) {
  const at::Tensor y = RunKernel(kernel_case.op, kernel_case.attributes, inputs)[0];
  return y.dim() == 0 ? at::Tensor()
                      : RandomValues(random, {.shape = y.sizes().vec()}).to(y.scalar_type());
}

void CompareWithReference(const KernelCase& kernel_case,
                          at::ScalarType compute,
                          double tolerance,
                          Random& random) {
  std::vector<at::Tensor> inputs;
  for (const InputSpec& spec : kernel_case.inputs) {
    inputs.push_back(RandomValues(random, spec));
  }
  inputs = Cast(inputs, compute);
  const at::Tensor dy = DrawOutputGradient(random, kernel_case, inputs);
  const Answers expected = Reference(kernel_case, inputs, dy);
  const Answers actual = Heddle(kernel_case, inputs, dy);
  const double amplification =
      kernel_case.amplification ? std::max(1.0, kernel_case.amplification(ToDouble(inputs))) : 1.0;
  ExpectClose(actual.output, expected.output, tolerance, amplification, kernel_case.op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = kernel_case.op + " gradient of input " + std::to_string(i);
    ASSERT_EQ(actual.gradients[i].defined(), expected.gradients[i].defined()) << what;
    if (expected.gradients[i].defined()) {
      ExpectClose(actual.gradients[i], expected.gradients[i], tolerance, amplification, what);
    }
  }
}

class KernelsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    PreferPlainAten(GetParam());
    at::set_num_threads(2);
  }
  void TearDown() override { PreferPlainAten(false); }

  /// Calls body with every case of some draws of shapes.
  void ForEachCase(int draws, const std::function<void(const KernelCase&, Random&)>& body) {
    for (const uint64_t seed : TestSeeds(draws)) {
      HEDDLE_TRACE_SEED(seed);
      Random random(seed);
      for (const KernelCase& kernel_case : DrawCases(random)) {
        body(kernel_case, random);
      }
    }
  }
};

TEST_P(KernelsTest, Fp64EqualsAutograd) {
  ForEachCase(kDraws, [](const KernelCase& kernel_case, Random& random) {
    CompareWithReference(kernel_case, at::kDouble, kTolerance64, random);
  });
}

TEST_P(KernelsTest, Fp32IsCloseToFp64) {
  ForEachCase(kDraws, [](const KernelCase& kernel_case, Random& random) {
    CompareWithReference(kernel_case, at::kFloat, kTolerance32, random);
  });
}

TEST_P(KernelsTest, Bf16IsCloseToFp64) {
  ForEachCase(kDraws, [](const KernelCase& kernel_case, Random& random) {
    CompareWithReference(kernel_case, at::kBFloat16, kTolerance16, random);
  });
}

// The gradient along a random direction against (f(x + h v) - f(x - h v)) / 2h, kernels alone.
TEST_P(KernelsTest, GradientsEqualCentralDifferences) {
  ForEachCase(2, [](const KernelCase& kernel_case, Random& random) {
    std::vector<at::Tensor> inputs;
    for (const InputSpec& spec : kernel_case.inputs) {
      inputs.push_back(RandomValues(random, spec));
    }
    const at::Tensor dy = DrawOutputGradient(random, kernel_case, inputs);
    const Answers answers = Heddle(kernel_case, inputs, dy);
    const auto objective = [&](const std::vector<at::Tensor>& at_inputs) {
      const at::Tensor y = RunKernel(kernel_case.op, kernel_case.attributes, at_inputs)[0];
      return dy.defined() ? (y * dy).sum().item<double>() : y.item<double>();
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].scalar_type() != at::kDouble) {
        continue;
      }
      constexpr double kStep = 1e-6;
      const at::Tensor direction = RandomValues(random, kernel_case.inputs[i]);
      std::vector<at::Tensor> above = inputs;
      std::vector<at::Tensor> below = inputs;
      above[i] = inputs[i] + direction * kStep;
      below[i] = inputs[i] - direction * kStep;
      const double numeric = (objective(above) - objective(below)) / (2 * kStep);
      const at::Tensor products = answers.gradients[i] * direction;
      const double scale = products.abs().sum().item<double>() + 1e-3;
      EXPECT_NEAR(products.sum().item<double>() / scale, numeric / scale, 1e-6)
          << kernel_case.op << " input " << i;
    }
  });
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() &&
         (!a.defined() ||
          (a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0));
}

void ExpectSameBits(const Answers& a, const Answers& b, const std::string& what) {
  EXPECT_TRUE(SameBits(a.output, b.output)) << what;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(SameBits(a.gradients[i], b.gradients[i])) << what << " gradient of input " << i;
  }
}

TEST_P(KernelsTest, SameBitsFromOtherMemory) {
  ForEachCase(2, [](const KernelCase& kernel_case, Random& random) {
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> inputs;
      for (const InputSpec& spec : kernel_case.inputs) {
        inputs.push_back(RandomValues(random, spec));
      }
      inputs = Cast(inputs, compute);
      const at::Tensor dy = DrawOutputGradient(random, kernel_case, inputs);
      const Answers first = Heddle(kernel_case, inputs, dy);
      std::vector<at::Tensor> spacers;
      std::vector<at::Tensor> moved;
      for (const at::Tensor& input : inputs) {
        spacers.push_back(at::empty({random.Between(1, 5000)}));
        moved.push_back(input.clone());
      }
      ExpectSameBits(first, Heddle(kernel_case, moved, dy.defined() ? dy.clone() : dy),
                     kernel_case.op);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, KernelsTest, ::testing::Values(false, true), [](const auto& form) {
  return std::string(form.param ? "PlainAten" : "Loops");
});

// Matrix products are the library's; everything else of ours does not depend on threads at all.
TEST(KernelLoopsTest, BitsDoNotDependOnThreads) {
  Random random(TestSeed());
  for (const KernelCase& kernel_case : DrawCases(random)) {
    if (kernel_case.op == "linear") {
      continue;
    }
    std::vector<at::Tensor> inputs;
    for (const InputSpec& spec : kernel_case.inputs) {
      InputSpec wider = spec;
      if (kernel_case.op == "swiglu" || kernel_case.op == "gelu" || kernel_case.op == "add") {
        wider.shape[0] *= 16;
      }
      inputs.push_back(RandomValues(random, wider));
    }
    inputs = Cast(inputs, at::kFloat);
    const at::Tensor dy = DrawOutputGradient(random, kernel_case, inputs);
    at::set_num_threads(1);
    const Answers one = Heddle(kernel_case, inputs, dy);
    at::set_num_threads(3);
    ExpectSameBits(one, Heddle(kernel_case, inputs, dy), kernel_case.op);
  }
  at::set_num_threads(2);
}

// A kernel that no case names is compared with nothing. Gradients are compared through their
// operator; dropout is random and has a test of its own; the parts of cross_entropy are never
// differentiated, and shares_test compares them.
TEST(KernelRegistryTest, EveryForwardOperatorHasACase) {
  Random random(TestSeed());
  std::set<std::string_view> cases = {"dropout", "row_max", "exp_sum", "cross_entropy_of_sums"};
  const std::vector<KernelCase> drawn = DrawCases(random);
  for (const KernelCase& kernel_case : drawn) {
    cases.insert(kernel_case.op);
  }
  std::set<std::string_view> operators;
  for (const graph::Operator* op : graph::AllOperators()) {
    if (!op->name().ends_with("_gradient")) {
      operators.insert(op->name());
    }
  }
  EXPECT_EQ(cases, operators);
}

TEST(KernelRegistryTest, OperatorsAndKernelsAreTheSame) {
  std::set<std::string_view> operators;
  for (const graph::Operator* op : graph::AllOperators()) {
    operators.insert(op->name());
  }
  const std::vector<std::string_view> names = KernelNames();
  EXPECT_EQ(operators, std::set<std::string_view>(names.begin(), names.end()));
  EXPECT_EQ(FindKernel("no_such_operator"), nullptr);
}

TEST(EdgeTest, LongRowsOfAttentionAndLargeScoresStayFinite) {
  const auto options = at::TensorOptions(at::kFloat);
  const at::Tensor q = at::full({1, 150, 8}, 60.0, options);
  const auto outputs =
      RunKernel("attention", {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}}, {q, q, q});
  EXPECT_TRUE(at::allclose(outputs[0], q));
  EXPECT_TRUE(at::isfinite(outputs[1]).all().item<bool>());
}

TEST(EdgeTest, NotANumberReachesTheLoss) {
  at::Tensor logits = at::zeros({1, 2, 40}, at::TensorOptions(at::kBFloat16));
  logits[0][1][17] = std::nan("");
  const at::Tensor targets = at::zeros({1, 2}, at::TensorOptions(at::kInt));
  const auto outputs = RunKernel("cross_entropy", {{"scale", 1.0}}, {logits, targets});
  EXPECT_TRUE(std::isnan(outputs[0].item<double>()));
  const auto sum = RunKernel("add", {}, {logits, logits});
  EXPECT_TRUE(std::isnan(sum[0][0][1][17].item<float>()));
}

TEST(DropoutTest, MaskIsAFunctionOfTheSampleAndKeepsTheMean) {
  const at::Tensor x = at::ones({4, 64, 96}, at::TensorOptions(at::kFloat));
  const graph::Attributes attributes{{"p", 0.25}, {"site", int64_t{3}}};
  const KernelContext context{.seed = 7, .step = 11, .first_sample = 20};
  const at::Tensor whole = RunKernel("dropout", attributes, {x}, context)[0];
  KernelContext second = context;
  second.first_sample = 22;
  const at::Tensor half = RunKernel("dropout", attributes, {x.slice(0, 2, 4).clone()}, second)[0];
  EXPECT_TRUE(at::equal(whole.slice(0, 2, 4), half));
  EXPECT_NEAR(whole.mean().item<double>(), 1.0, 0.02);
  EXPECT_TRUE(at::equal(at::where(whole == 0, at::ones({}), whole * 0.75), at::ones_like(whole)));

  for (const KernelContext& other : {KernelContext{.seed = 8, .step = 11, .first_sample = 20},
                                     KernelContext{.seed = 7, .step = 12, .first_sample = 20},
                                     KernelContext{.seed = 7, .step = 11, .first_sample = 21}}) {
    EXPECT_FALSE(at::equal(whole, RunKernel("dropout", attributes, {x}, other)[0]));
  }
  // Backward applies the same mask.
  EagerNode node("dropout", attributes, {x}, context);
  EXPECT_TRUE(at::equal(node.Backward(at::ones_like(x))[0], whole));
}

}  // namespace
}  // namespace heddle::runtime::testing
