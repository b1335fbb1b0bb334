/// \file
/// Goal: an exchange of values on a device goes on beside whatever else the worker does, and ends,
/// well or not; slices and fills are made on the device.
#include "engine/runtime/exchange/exchanges.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "tests/comm/cluster.h"
#include "tests/support/device/fake_device.h"

namespace heddle::runtime::testing {
namespace {

using graph::Exchange;
using graph::ExchangeForm;
using ::testing::ElementsAre;

constexpr int64_t kRows = 4;

std::unique_ptr<Device> MakeDevice(bool fake) {
  if (fake) {
    return std::make_unique<FakeDevice>(FakeOptions{.seed = 3});
  }
  return std::make_unique<CpuDevice>();
}

graph::TensorType Rows(int64_t rows) {
  return {.dtype = DType::kF32, .shape = {rows}};
}

/// A value that the device computes later.
at::Tensor Computed(Device& device, const std::vector<float>& values) {
  at::Tensor tensor = device.Empty(Rows(static_cast<int64_t>(values.size())));
  device.Update([tensor, values] {
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor.data_ptr()));
  });
  return tensor;
}

std::vector<float> Read(Device& device, const at::Tensor& value) {
  const Copied copied = device.Download(value);
  EXPECT_TRUE(copied.mark.Wait(After(kLongestWait)).ok());
  const auto* const values = static_cast<const float*>(copied.tensor.data_ptr());
  return {values, values + copied.tensor.numel()};
}

Exchange SumOfTwo() {
  return {.form = ExchangeForm::kSum,
          .sent = {{0, kRows}, {0, kRows}},
          .received = {{0, kRows}, {0, kRows}}};
}

/// Two members, of which this test calls the other's collective itself.
class ExchangesTest : public ::testing::TestWithParam<bool> {
 protected:
  static ExchangePart PartOf(const Exchange& exchange,
                             const std::vector<int>& group,
                             const at::Tensor& value) {
    return {.exchange = &exchange,
            .group = group,
            .position = 0,
            .tag = 9,
            .value = value,
            .to = Rows(kRows)};
  }
};

// The threads of bulk all wait, and the other member makes an urgent call.
TEST_P(ExchangesTest, AnExchangeIsUrgent) {
  comm::Cluster cluster(2, comm::Media::kTcp);
  const std::vector<int> group = {0, 1};
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    if (rank == 1) {
      std::vector<float> addend = {1, 2, 3, 4};
      const Status status =
          communicator.AllReduce(comm::RawOf(addend), DType::kF32, comm::ReduceOp::kSum,
                                 {.group = group, .tag = 9, .deadline = {}, .urgent = true});
      ASSERT_TRUE(status.ok()) << status.ToString();
      return;
    }
    std::atomic<bool> ended = false;
    std::vector<comm::Work> bulk;
    for (int i = 0; i < 4; ++i) {
      bulk.push_back(communicator.Start(
          [&] {
            while (!ended.load()) {
              std::this_thread::yield();
            }
            return Status::Ok();
          },
          /*urgent=*/false));
    }
    const auto device = MakeDevice(GetParam());
    Exchanges exchanges(&communicator, *device, HostTensor);
    const Exchange exchange = SumOfTwo();
    at::Tensor value = Computed(*device, {10, 20, 30, 40});
    const at::Tensor made = exchanges.Begin(5, PartOf(exchange, group, value));
    value.reset();  // It is kept until the exchange has ended.
    const auto at = exchanges.Await(5);
    ended.store(true);
    ASSERT_TRUE(at.ok()) << at.status().ToString();
    const auto* const values = static_cast<const float*>(made.data_ptr());
    EXPECT_THAT(std::vector<float>(values, values + kRows), ElementsAre(11, 22, 33, 44));
    EXPECT_TRUE(exchanges.Finish().ok()) << "it was awaited";
    for (const comm::Work& work : bulk) {
      EXPECT_TRUE(work.Wait().ok());
    }
  });
}

TEST_P(ExchangesTest, AnAbortEndsEveryWait) {
  comm::Cluster cluster(2, comm::Media::kShm);
  const std::vector<int> group = {0, 1};
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    if (rank == 1) {  // It makes no exchange, and leaves when the other is gone.
      Bytes none;
      EXPECT_FALSE(communicator.Recv(0, 1, none, true).Wait().ok());
      return;
    }
    const auto device = MakeDevice(GetParam());
    Exchanges exchanges(&communicator, *device, HostTensor);
    const Exchange exchange = SumOfTwo();
    for (const size_t key : {1, 2, 3, 4, 5, 6}) {  // More than run at once.
      exchanges.Begin(key, PartOf(exchange, group, Computed(*device, {1, 2, 3, 4})));
    }
    exchanges.Abandon(AbortedError("the step failed"));
    EXPECT_TRUE(exchanges.Finish().ok()) << "none is left";
  });
}

TEST_P(ExchangesTest, ASliceIsARangeOfWhatTheMemberHas) {
  const auto device = MakeDevice(GetParam());
  const Exchange slice{.form = ExchangeForm::kSlice, .sent = {{2, 6}}, .received = {{3, 5}}};
  ExchangePart part{.exchange = &slice, .value = Computed(*device, {2, 3, 4, 5}), .to = Rows(2)};
  EXPECT_THAT(Read(*device, MakeAlone(*device, part)), ElementsAre(3, 4));
}

TEST_P(ExchangesTest, AFillAddsWhatChangesNoSum) {
  const auto device = MakeDevice(GetParam());
  const Exchange fill{
      .form = ExchangeForm::kFill, .sent = {{0, 2}, {}}, .received = {{0, 2}, {0, 2}}};
  ExchangePart part{.exchange = &fill, .value = Computed(*device, {1, -0.0F}), .to = Rows(2)};
  const std::vector<float> copied = Read(*device, MakeAlone(*device, part));
  EXPECT_THAT(copied, ElementsAre(1, 0));
  EXPECT_TRUE(std::signbit(copied[1]));
  part.position = 1;
  part.value.reset();
  for (const float zero : Read(*device, MakeAlone(*device, part))) {
    EXPECT_EQ(zero, 0);
    EXPECT_TRUE(std::signbit(zero));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ExchangesTest, ::testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "Fake" : "Processor");
});

}  // namespace
}  // namespace heddle::runtime::testing
