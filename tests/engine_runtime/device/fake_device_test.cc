/// \file
/// Goal: the fake device keeps to what devices promise, is as unkind as they may be, and shows
/// every promise that is broken.
#include "tests/support/device/fake_device.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "engine/runtime/device/tensor.h"
#include "tests/support/device/contract.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
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

/// Memory of others, in whole pages.
class Pages {
 public:
  Pages()
      : memory_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_NE(static_cast<void*>(memory_), MAP_FAILED);
  }
  ~Pages() { Free(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void Free() {
    if (memory_ != nullptr) {
      ::munmap(std::exchange(memory_, nullptr), kBytes);
    }
  }
  std::span<std::byte> bytes() const { return {memory_, kBytes}; }
  /// Elements that lie `begin` elements behind the first one.
  at::Tensor At(int64_t begin, int64_t elements) const {
    return at::from_blob(memory_ + 4 * begin, {elements}, at::kFloat);
  }

 private:
  static constexpr size_t kBytes = 4 * 4096;
  std::byte* memory_;
};

TEST(FakeDeviceTest, CopiesOfUnregisteredMemoryAreCounted) {
  FakeDevice device({});
  const Pages pages;
  const at::Tensor value = device.Upload(device.HostBuffer(Floats(100))).tensor;
  device.DownloadInto(value, device.HostBuffer(Floats(100)));
  {
    auto registration = device.RegisterHost(pages.bytes());
    ASSERT_TRUE(registration.ok());
    EXPECT_EQ(device.host_memory().registered(), 1);
    EXPECT_TRUE(device.DownloadInto(value, pages.At(1000, 100)).Wait(After(kPatience)).ok());
    device.Upload(pages.At(0, 4096));
    EXPECT_TRUE(device.Drain(After(kPatience)).ok());
    EXPECT_EQ(device.host_memory().pageable_copies(), 0);
  }
  EXPECT_EQ(device.host_memory().registered(), 0);
  EXPECT_TRUE(device.DownloadInto(value, pages.At(0, 100)).Wait(After(kPatience)).ok());
  device.Upload(pages.At(0, 100));
  EXPECT_EQ(device.host_memory().pageable_copies(), 2);
  EXPECT_THAT(device.violations(), IsEmpty());

  FakeDevice refusing({.registers = false});
  EXPECT_EQ(refusing.RegisterHost(pages.bytes()).status().code(), StatusCode::kResourceExhausted);
}

TEST(FakeDeviceTest, ARegistrationOutlivesItsCopies) {
  for (const bool up : {false, true}) {
    FakeDevice device({});
    const Pages pages;
    auto registration = device.RegisterHost(pages.bytes());
    ASSERT_TRUE(registration.ok());
    if (up) {
      device.Upload(pages.At(0, 100));
    } else {
      device.DownloadInto(device.Empty(Floats(100)), pages.At(0, 100));
    }
    registration = std::shared_ptr<void>();
    EXPECT_THAT(device.violations(), ElementsAre("a registration ended under a copy"));
  }
}

TEST(FakeDeviceTest, ARegistrationEndsBeforeItsMemory) {
  FakeDevice device({});
  Pages pages;
  auto registration = device.RegisterHost(pages.bytes());
  ASSERT_TRUE(registration.ok());
  EXPECT_THAT(device.violations(), IsEmpty());
  pages.Free();
  EXPECT_THAT(device.violations(), ElementsAre("registered memory was freed"));
  registration = std::shared_ptr<void>();
  EXPECT_THAT(device.violations(),
              ElementsAre("registered memory was freed before its registration ended"));
}

TEST(FakeDeviceTest, RegisteredMemoryIsNotRegisteredAgain) {
  FakeDevice device({});
  const Pages pages;
  const auto registration = device.RegisterHost(pages.bytes());
  const auto again = device.RegisterHost(pages.bytes().subspan(4096));
  EXPECT_THAT(device.violations(),
              ElementsAre("registered memory was freed, and is registered again"));
}

// A piece of a slab that has another owner while a copy still uses it.
TEST(FakeDeviceTest, MemoryIsNotUsedAgainUnderACopy) {
  const auto what_is_seen = [](const std::function<void(FakeDevice&, const Pages&)>& use) {
    FakeDevice device({});
    const Pages pages;
    const auto registration = device.RegisterHost(pages.bytes());
    use(device, pages);
    EXPECT_TRUE(device.Drain(After(kPatience)).ok());
    return device.violations();
  };
  const auto down = [](FakeDevice& device, const at::Tensor& host) {
    device.DownloadInto(device.Empty(Floats(host.numel())), host);
  };
  const std::string again = "memory of the host was used again under a copy";
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                down(device, pages.At(0, 100));
                down(device, pages.At(99, 100));
              }),
              Contains(again));
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                device.Upload(pages.At(50, 1));
                down(device, pages.At(0, 100));
              }),
              Contains(again));
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                down(device, pages.At(0, 100));
                device.Upload(pages.At(50, 1));
              }),
              Contains(again));
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                down(device, pages.At(0, 100));
                pages.bytes()[399] = std::byte{0};
              }),
              ElementsAre("the host changed a tensor before its download had ended"));
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                device.Upload(pages.At(0, 100));
                pages.bytes()[399] = std::byte{1};
              }),
              ElementsAre("the host changed a tensor before its upload had ended"));
  EXPECT_THAT(what_is_seen([&](FakeDevice& device, const Pages& pages) {
                down(device, pages.At(0, 100));
                down(device, pages.At(100, 100));
                device.Upload(pages.At(200, 100));
                device.Upload(pages.At(200, 100));
              }),
              IsEmpty());
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
