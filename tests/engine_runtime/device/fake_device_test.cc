/// \file
/// Goal: the fake device keeps to what devices promise, is as unkind as they may be, and shows
/// every promise that is broken.
#include "tests/support/device/fake_device.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/tensor.h"
#include "tests/support/device/contract.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

constexpr Duration kPatience = std::chrono::seconds(20);

graph::TensorType Floats(int64_t count) {
  return {.dtype = DType::kF32, .shape = {count}};
}

TEST(FakeDeviceTest, KeepsToWhatDevicesPromise) {
  for (const uint64_t seed : heddle::testing::TestSeeds(heddle::testing::Scaled(5, 20, 100))) {
    FakeDevice device({.seed = seed});
    EXPECT_THAT(BrokenPromises(device, seed), IsEmpty()) << "seed " << seed;
    EXPECT_THAT(device.violations(), IsEmpty()) << "seed " << seed;
  }
}

TEST(FakeDeviceTest, ValuesThatNobodyComputedAreNaN) {
  FakeDevice device({});
  const Copied copied = device.Download(device.Empty(Floats(100)));
  ASSERT_TRUE(copied.mark.Wait(After(kPatience)).ok());
  EXPECT_TRUE(copied.tensor.isnan().all().item<bool>());
}

TEST(FakeDeviceTest, WhatNobodyWaitsForMayStayUndone) {
  FakeDevice device({});
  int64_t undone = 0;
  for (int i = 0; i < 20; ++i) {
    const Copied copied = device.Download(device.Empty(Floats(1)));
    undone += copied.mark.Ended() ? 0 : 1;
  }
  EXPECT_GT(undone, 0);
}

TEST(FakeDeviceTest, MemoryIsLimited) {
  FakeDevice device({.memory_bytes = size_t{1} << 20});
  at::Tensor most = device.Empty(Floats(200'000));
  EXPECT_ANY_THROW(device.Empty(Floats(200'000)));
  most.reset();
  EXPECT_EQ(device.memory_in_use(), 0);
  EXPECT_NO_THROW(device.Empty(Floats(200'000)));
}

// What the device says after an error, with a further copy.
Status AfterAnError(FakeDevice& device) {
  const at::Tensor value = device.Empty(Floats(1000));
  device.Prepare([value] { value.zero_(); });
  device.Download(value).mark.Wait(After(kPatience)).IgnoreError("the first may come late");
  device.Drain(After(kPatience)).IgnoreError("likewise");
  const Status again = device.Drain(After(kPatience));
  const Status last = device.Download(value).mark.Wait(After(kPatience));
  return again.ok() ? again : last;
}

TEST(FakeDeviceTest, ErrorsComeLateAndStay) {
  FakeDevice failed({.error_in_work = 1});
  EXPECT_EQ(AfterAnError(failed).code(), StatusCode::kInternal);
  FakeDevice lost({.lost_in_copy = 1});
  EXPECT_EQ(AfterAnError(lost).message(), "the device is gone");
}

TEST(FakeDeviceDeathTest, TheHostCannotTouchTheDevicesMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        FakeDevice device({});
        const at::Tensor value = device.Empty(Floats(1));
        device.Prepare([value] { value.zero_(); });
        device.Drain(After(kPatience)).IgnoreError("it is read next");
        EXPECT_EQ(*static_cast<const float*>(value.data_ptr()), 0);
      },
      "");
  EXPECT_DEATH(
      {
        FakeDevice device({.fault = Fault::kDownloadIsTheDevice});
        BrokenPromises(device, 1);
      },
      "");
}

// Whether one of a few trials shows the fault.
bool IsSeen(Fault fault) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    FakeDevice device({.seed = seed, .fault = fault});
    if (!BrokenPromises(device, seed).empty() || !device.violations().empty()) {
      return true;
    }
    FakeDevice failing({.seed = seed, .fault = fault, .error_in_work = 1});
    if (AfterAnError(failing).ok()) {
      return true;
    }
  }
  return false;
}

TEST(FakeDeviceTest, EveryBrokenPromiseIsSeen) {
  EXPECT_FALSE(IsSeen(Fault::kNone));
  for (int fault = 1; fault < kFaults; ++fault) {
    if (static_cast<Fault>(fault) != Fault::kDownloadIsTheDevice) {  // It kills: see above.
      EXPECT_TRUE(IsSeen(static_cast<Fault>(fault))) << "fault " << fault;
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
