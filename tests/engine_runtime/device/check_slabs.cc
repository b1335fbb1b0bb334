/// \file
/// Goal: copies between the device and shared memory are whole, and what registering it gains.
#include <memory>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/runtime/device/tensor.h"
#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

/// Bytes a second of copies of `host` to the device and back, after a first one. Fails the test where
/// one is not whole.
nlohmann::json RatesOf(Device& device, const at::Tensor& host) {
  const at::Tensor value = OnDevice(device, at::arange(host.numel(), host.options()));
  double down = 0;
  double up = 0;
  for (int round = 0; round < 3; ++round) {
    host.zero_();
    EXPECT_TRUE(device.Drain(After(kPatience)).ok());
    const Time begun = Now();
    EXPECT_TRUE(device.DownloadInto(value, host).Wait(After(kPatience)).ok());
    const Time between = Now();
    const Copied back = device.Upload(host);
    EXPECT_TRUE(back.mark.Wait(After(kPatience)).ok());
    const Time ended = Now();
    device.Await(back.mark);
    EXPECT_TRUE(at::equal(OnHost(device, back.tensor), at::arange(host.numel(), host.options())));
    down = static_cast<double>(host.nbytes()) / Seconds(between - begun);
    up = static_cast<double>(host.nbytes()) / Seconds(ended - between);
  }
  return {{"down_bytes_per_second", down}, {"up_bytes_per_second", up}};
}

// It judges no time: the figures are for people.
TEST(DeviceCheck, ACopyToAndFromASharedSlabIsWhole) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const auto slab = SharedSlab::Create(static_cast<size_t>(Size(1 << 20, 16 << 20)));
  ASSERT_TRUE(slab.ok()) << slab.status().ToString();
  const at::Tensor host = HostView(
      (*slab)->bytes(),
      {.dtype = DType::kI32, .shape = {static_cast<int64_t>((*slab)->bytes().size()) / 4}});
  nlohmann::json figures{{"bytes", (*slab)->bytes().size()}, {"pageable", RatesOf(**device, host)}};
  const Time begun = Now();
  auto registration = (*device)->RegisterHost((*slab)->bytes());
  ASSERT_TRUE(registration.ok()) << registration.status().ToString();
  figures["seconds_to_register"] = Seconds(Now() - begun);
  figures["registered"] = RatesOf(**device, host);
  Note("slab", figures);
  registration = std::shared_ptr<void>();
  RatesOf(**device, host);  // As before.
}

}  // namespace
}  // namespace heddle::runtime::testing
