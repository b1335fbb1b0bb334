// Memory of tensors that other workers reach: which it is, that live tensors have their own, that
// it serves again, and that it may outlive everything that it came from.
#include "engine/runtime/shared_tensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "tests/support/seed.h"

namespace heddle::runtime {
namespace {

std::unique_ptr<comm::Endpoint> MakeEndpoint(metrics::Registry& registry) {
  auto endpoint = comm::Endpoint::Create(
      {.config = {.worker = "a", .job = "job", .secret = "s"}, .metrics = &registry});
  EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
  return *std::move(endpoint);
}

/// What the kernel says is mapped there.
std::string MappedAt(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    words >> std::hex >> begin >> dash >> end;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at >= begin && at < end) {
      return line;
    }
  }
  return {};
}

bool IsShared(const at::Tensor& tensor) {
  const std::string map = MappedAt(tensor.data_ptr());
  return map.find("rw-s") != std::string::npos;
}

graph::TensorType Floats(int64_t count) {
  return {DType::kF32, {count}};
}

TEST(SharedTensorsTest, LargeOnesAreSharedAndServeAgain) {
  metrics::Registry registry;
  const auto endpoint = MakeEndpoint(registry);
  CpuDevice device;
  SharedTensors tensors(*endpoint, device);
  EXPECT_FALSE(IsShared(tensors.Empty(Floats(100))));
  EXPECT_FALSE(IsShared(tensors.Empty(Floats(0))));
  at::Tensor large = tensors.Empty({DType::kBF16, {2, 3, 10'000}});
  EXPECT_TRUE(IsShared(large));
  EXPECT_EQ(large.sizes(), (std::vector<int64_t>{2, 3, 10'000}));
  EXPECT_EQ(large.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(large.is_contiguous());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data_ptr()) % 4096, 0U);
  const void* const place = large.data_ptr();
  const at::Tensor view = large.slice(0, 1);
  large.reset();
  EXPECT_NE(tensors.Empty({DType::kBF16, {60'000}}).data_ptr(), place) << "a view still lives";
  const_cast<at::Tensor&>(view).reset();
  EXPECT_EQ(tensors.Empty({DType::kBF16, {60'000}}).data_ptr(), place);
}

TEST(SharedTensorsTest, LiveOnesHaveMemoryOfTheirOwn) {
  metrics::Registry registry;
  const auto endpoint = MakeEndpoint(registry);
  CpuDevice device;
  SharedTensors tensors(*endpoint, device);
  Random random(testing::TestSeed());
  std::vector<std::pair<at::Tensor, int>> live;
  const auto holds = [](const at::Tensor& tensor, int value) {
    const auto bytes = BytesOf(tensor);
    return std::all_of(bytes.begin(), bytes.end(),
                       [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
  };
  for (int i = 0; i < 300; ++i) {
    if (live.size() > 20 || (!live.empty() && random.Below(3) == 0)) {
      const size_t victim = random.Below(live.size());
      EXPECT_TRUE(holds(live[victim].first, live[victim].second)) << i;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    at::Tensor tensor = tensors.Empty(Floats(static_cast<int64_t>(random.Below(300'000))));
    std::ranges::fill(BytesOf(tensor), static_cast<std::byte>(i));
    live.emplace_back(std::move(tensor), i & 0xFF);
  }
  for (const auto& [tensor, value] : live) {
    EXPECT_TRUE(holds(tensor, value));
  }
}

TEST(SharedTensorsTest, ATensorMayBeTheLastToGo) {
  metrics::Registry registry;
  auto endpoint = MakeEndpoint(registry);
  auto device = std::make_unique<CpuDevice>();
  auto tensors = std::make_unique<SharedTensors>(*endpoint, *device);
  const at::Tensor last = tensors->Empty(Floats(10'000));
  tensors.reset();
  endpoint.reset();
  device.reset();
  std::memset(last.data_ptr(), 7, last.nbytes());
  EXPECT_TRUE(IsShared(last));
}

}  // namespace
}  // namespace heddle::runtime
