/// \file
/// The part of the check of a device (check_test.cc) about operators that only add: they have the
/// processor's bits on every device. Products and exponential functions round otherwise on a card.
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/graph/operator.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel.h"
#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

struct SumCase {
  std::string op;
  graph::Attributes attributes;
  std::vector<at::Tensor> inputs;
};

std::vector<SumCase> Cases(at::ScalarType type) {
  const int64_t length = Size(33, 1025);
  const int64_t dim = Size(24, 776);
  Random random(1);
  at::Tensor dy = at::empty({3, length, dim}, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < dy.numel(); ++i) {
    dy.data_ptr<float>()[i] = static_cast<float>(2 * random.Uniform() - 1);
  }
  dy = dy.to(type);
  at::Tensor tokens = at::empty({3, length}, at::TensorOptions(at::kInt));
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    // Half of them are one token, and some are in no row of the share.
    tokens.data_ptr<int32_t>()[i] = i % 2 == 0 ? 40 : static_cast<int32_t>(random.Below(97));
  }
  return {{"bias_gradient", {}, {dy}},
          {"position_weight_gradient",
           {{"positions", length + 5}, {"first_position", int64_t{3}}},
           {dy}},
          {"embedding_weight_gradient", {{"vocabulary", int64_t{120}}}, {dy, tokens}},
          {"embedding_weight_gradient",
           {{"vocabulary", int64_t{35}}, {"first_row", int64_t{30}}},
           {dy, tokens}}};
}

TEST(DeviceCheck, SumsHaveTheProcessorsBits) {
  const c10::InferenceMode inference;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [op, attributes, inputs] : Cases(type)) {
      SCOPED_TRACE(op);
      graph::Node node;
      node.op = graph::FindOperator(op);
      node.attributes = attributes;
      const at::Tensor expected = FindKernel(op)(node, inputs, {})[0];
      std::vector<at::Tensor> there;
      for (const at::Tensor& input : inputs) {
        there.push_back(OnDevice(**device, input));
      }
      const graph::TensorType output{DType::kF32, expected.sizes().vec()};
      const Kernel kernel = FindKernel(op, (*device)->type());
      const Device::Outputs computed =
          (*device)->Compute([kernel, &node, there] { return kernel(node, there, {}); }, {&output});
      EXPECT_TRUE(at::equal(OnHost(**device, computed[0]), expected));
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
