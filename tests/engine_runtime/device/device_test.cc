/// \file
/// Devices by name, what they promise, and element types between Heddle and libtorch.
#include "engine/runtime/device/device.h"

#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernels/simd/simd.h"
#include "tests/support/device/contract.h"
#include "tests/support/seed.h"

namespace heddle::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(DeviceTest, OnlyKnownWordsAreDevices) {
  const auto cpu = OpenDevice("cpu", {.speed = 0.5, .memory_cap_bytes = 7});
  ASSERT_TRUE(cpu.ok());
  EXPECT_TRUE((*cpu)->is_host());
  EXPECT_EQ((*cpu)->clock().speed(), 0.5);
  EXPECT_EQ((*cpu)->memory_cap(), 7);
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda1", "cuda:-1", "cuda:1x"}) {
    EXPECT_EQ(OpenDevice(name, {}).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(OpenDevice("cuda:127", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((*OpenDevice("auto", {}))->is_host());
}

TEST(DeviceTest, ElementTypesGoBothWays) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8}) {
    const auto back = FromScalarType(ToScalarType(dtype));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, dtype);
  }
  EXPECT_FALSE(FromScalarType(at::kComplexFloat).ok());
}

TEST(CpuDeviceTest, KeepsToWhatDevicesPromise) {
  CpuDevice device;
  EXPECT_THAT(testing::BrokenPromises(device, heddle::testing::TestSeed()), IsEmpty());
}

TEST(CpuDeviceTest, TensorsOfAllThreadsCountWhereverTheyEnd) {
  CpuDevice device;
  const int64_t before = device.memory_in_use();
  constexpr int64_t kBytes = int64_t{4} << 20;
  at::Tensor made = at::zeros({kBytes / 8}, at::kFloat);
  std::thread([&made] {
    const at::Tensor other = at::zeros({kBytes / 8}, at::kFloat);
    made = at::cat({made, other});
  }).join();
  EXPECT_GE(device.memory_in_use(), before + kBytes);
  EXPECT_LT(device.memory_in_use(), before + kBytes + kBytes / 16);
  EXPECT_GE(device.memory_peak(), before + 2 * kBytes) << "with both parts";
  std::thread([gone = std::move(made)] {}).join();
  EXPECT_EQ(device.memory_in_use(), before);
  at::empty({0}, at::kFloat);
  EXPECT_EQ(device.memory_in_use(), before) << "an empty tensor has no memory";
}

// The libraries' own words, which the environment changes: tests/integration/serve/guarantee_test.py.
TEST(CpuDeviceTest, ItsArithmeticNamesWhatComputes) {
  const Arithmetic parts = CpuDevice().arithmetic();
  for (const char* part :
       {"processor", "instructions", "blas", "libtorch", "onednn", "libc", "compiler"}) {
    ASSERT_TRUE(parts.contains(part)) << part;
    EXPECT_THAT(parts.at(part), Not(IsEmpty())) << part;
  }
  EXPECT_THAT(parts.at("instructions"), HasSubstr(std::string(simd::ActiveSet()) + ", libtorch "));
  EXPECT_THAT(parts.at("blas"), StartsWith(std::string(BlasName(LoadedBlas().kind))));
  EXPECT_EQ(CpuDevice({.speed = 0.5}).arithmetic(), parts) << "speed decides no bits";
}

TEST(CpuDeviceTest, ACopyIsTheValueItself) {
  CpuDevice device;
  const at::Tensor host = device.HostBuffer({.dtype = DType::kF32, .shape = {10}});
  const Copied up = device.Upload(host);
  const Copied down = device.Download(up.tensor);
  EXPECT_EQ(up.tensor.data_ptr(), host.data_ptr());
  EXPECT_EQ(down.tensor.data_ptr(), host.data_ptr());
  EXPECT_TRUE(up.mark.Ended() && down.mark.Ended());
}

}  // namespace
}  // namespace heddle::runtime
