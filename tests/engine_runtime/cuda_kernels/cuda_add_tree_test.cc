/// \file
/// Goal: the CUDA kernel that adds the members' gradients adds them in tree order, with the bits of
/// additions one by one. The code runs on the processor (hosted.cc).
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/tensor/reduction_tree.h"
#include "engine/runtime/device/cuda/code/add_tree.h"
#include "engine/runtime/device/peer_memory.h"
#include "tests/support/seed.h"

namespace heddle::runtime::cuda {
namespace {

template <typename T>
class CudaAddTreeTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaAddTreeTest, Types);

TYPED_TEST(CudaAddTreeTest, HasTheBitsOfAdditionsOneByOne) {
  using T = TypeParam;
  Random random(heddle::testing::TestSeed());
  for (const int64_t elements : {1, 255, 256, 1001}) {
    for (const int64_t leaves : {1, 2, 3, 7, 21, 64}) {
      std::vector<std::vector<T>> values(static_cast<size_t>(leaves));
      std::vector<TreeNode> nodes;
      TreeAddends addends{};
      for (auto& value : values) {
        for (int64_t i = 0; i < elements; ++i) {
          value.push_back(static_cast<T>(
              std::ldexp(random.Uniform() - 0.5, static_cast<int>(random.Below(20)))));
        }
        value[0] = nodes.size() < 2 ? T{-0.0} : value[0];
        value.back() = nodes.size() == 1 ? std::numeric_limits<T>::infinity() : value.back();
        addends.memory[addends.count++] = value.data();
        nodes.push_back({.level = 0, .index = 2 * std::ssize(nodes) / 3 + std::ssize(nodes)});
      }
      const std::vector<uint8_t> additions = AdditionOrder(nodes);
      ASSERT_EQ(additions.size(), nodes.size());
      std::copy(additions.begin(), additions.end(), addends.additions);

      std::vector<std::vector<T>> expected = values;
      for (const Fold& fold : FoldOrder(nodes)) {
        for (size_t i = 0; i < expected[0].size(); ++i) {
          expected[static_cast<size_t>(fold.left)][i] +=
              expected[static_cast<size_t>(fold.right)][i];
        }
      }
      std::vector<T> sum(static_cast<size_t>(elements), std::numeric_limits<T>::quiet_NaN());
      AddTree(addends, sum.data(), elements, nullptr);
      EXPECT_EQ(sum, expected[0]);
      EXPECT_EQ(std::signbit(sum[0]), std::signbit(expected[0][0]));
      AddTree(addends, values[0].data(), elements, nullptr);  // In place of the first.
      EXPECT_EQ(values[0], expected[0]);
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::cuda
