/// \file
/// What the tests of hosted CUDA kernels share: random values, the operators' plain form in fp64, and
/// the forms that each test runs in.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/kernel_registry.h"
#include "engine/runtime/kernels/cuda/code/launch.h"
#include "tests/engine_runtime/eager.h"
#include "tests/support/seed.h"

namespace heddle::runtime::cuda {

using graph::Attributes;
using testing::RunKernel;

// Relative to the largest element: sums of at most some thousand terms, and one rounding to bf16.
inline double Tolerance(at::ScalarType type) {
  return type == at::kBFloat16 ? 8e-3 : 2e-5;
}

// By whether rows are whole packs, and by type.
class CudaKernelsTest : public ::testing::TestWithParam<std::tuple<bool, at::ScalarType>> {
 protected:
  void SetUp() override { PreferPlainAten(true); }
  void TearDown() override { PreferPlainAten(false); }

  at::ScalarType type() const { return std::get<1>(GetParam()); }
  Type value_type() const { return type() == at::kBFloat16 ? Type::kBf16 : Type::kF32; }
  // A dimension of about this size.
  int64_t Dim(int64_t size) { return std::get<0>(GetParam()) ? size / 8 * 8 : size / 8 * 8 + 3; }

  at::Tensor Wide(const std::vector<int64_t>& shape, double mean = 0) {
    at::Tensor values = at::empty(shape, at::TensorOptions(at::kFloat));
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data_ptr<float>()[i] = static_cast<float>(4 * random_.Uniform() - 2 + mean);
    }
    return values;
  }
  at::Tensor Values(const std::vector<int64_t>& shape) { return Wide(shape).to(type()); }
  at::Tensor Tokens(const std::vector<int64_t>& shape, int64_t limit) {
    at::Tensor values = at::empty(shape, at::TensorOptions(at::kInt));
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data_ptr<int32_t>()[i] =
          static_cast<int32_t>(random_.Below(static_cast<uint64_t>(limit)));
    }
    return values;
  }

  // The operator's plain form in fp64 on the very values of the inputs.
  std::vector<at::Tensor> Exact(const std::string& op,
                                const Attributes& attributes,
                                const std::vector<at::Tensor>& inputs,
                                const KernelContext& context = {}) {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& input : inputs) {
      wide.push_back(input.scalar_type() == at::kInt ? input : input.to(at::kDouble));
    }
    return RunKernel(op, attributes, wide, context);
  }

  void ExpectClose(const at::Tensor& actual, const at::Tensor& exact, const char* what) {
    ASSERT_EQ(actual.sizes(), exact.sizes()) << what;
    const at::Tensor difference = (actual.to(at::kDouble) - exact).abs();
    const double error = difference.max().item<double>() / exact.abs().max().item<double>();
    EXPECT_LE(error, Tolerance(actual.scalar_type())) << what;
    EXPECT_TRUE(at::isfinite(actual).all().item<bool>()) << what;
  }

  Random random_{heddle::testing::TestSeed()};
};

template <typename T>
T* DataOf(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// Rows of whole packs and others, fp32 and bf16.
inline auto Forms() {
  return ::testing::Combine(::testing::Bool(), ::testing::Values(at::kFloat, at::kBFloat16));
}
inline std::string NameOf(const ::testing::TestParamInfo<std::tuple<bool, at::ScalarType>>& form) {
  return std::string(std::get<0>(form.param) ? "Packs" : "Single") +
         (std::get<1>(form.param) == at::kFloat ? "F32" : "Bf16");
}

}  // namespace heddle::runtime::cuda
