/// \file
/// Goal: a profile has a time for all that a planner prices, on every kind of device, and measuring
/// it changes nothing of the device.
#include "engine/runtime/profiler.h"

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/operator.h"
#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

program::WorkerProfile Profiled(const graph::Graph& graph, Device& device) {
  Progress progress;
  const auto profile = MeasureProfile(*program::WorkOf(graph), device, progress);
  EXPECT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_GT(progress.count(), 0);
  return profile.ok() ? *profile : program::WorkerProfile();
}

void ExpectWhole(const graph::Graph& graph, const program::WorkerProfile& profile) {
  for (const graph::Node& node : graph.nodes) {
    const auto found = profile.seconds.find(graph::NodeSignature(graph, node));
    ASSERT_NE(found, profile.seconds.end()) << node.op->name();
    EXPECT_GT(found->second, 0) << found->first;
  }
  for (const char* const what : {"fold", "copy", "update"}) {
    EXPECT_GT(profile.seconds.at(what), 0) << what;
  }
  EXPECT_GT(profile.flops_per_second, 0);
  EXPECT_GT(profile.bytes_per_second, 0);
  EXPECT_GT(profile.instruction_seconds, 0);
}

TEST(ProfilerTest, EveryNodeAndRateIsMeasuredOnEachDevice) {
  for (const graph::ModelFamily family : {graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2}) {
    const graph::Graph graph =
        SmallModel(family, DType::kBF16, family == graph::ModelFamily::kGpt2 ? 0.1 : 0.0);
    CpuDevice processor;
    ExpectWhole(graph, Profiled(graph, processor));
    FakeDevice fake({});
    ExpectWhole(graph, Profiled(graph, fake));
    EXPECT_THAT(fake.violations(), IsEmpty());
    for (Device* const device : {static_cast<Device*>(&processor), static_cast<Device*>(&fake)}) {
      EXPECT_EQ(device->clock().TakeBusy(), Duration{}) << "the first step would count it";
    }
  }
}

/// The processor; it sees whether works run for the first time while they are measured.
class WatchedDevice final : public Device {
 public:
  explicit WatchedDevice(const Progress& runs) : Device(DeviceOptions{}), runs_(runs) {}

  Arithmetic arithmetic() const override { return own_.arithmetic(); }
  bool is_host() const override { return true; }
  at::Tensor Empty(const graph::TensorType& type) override { return own_.Empty(type); }
  at::Tensor HostBuffer(const graph::TensorType& type) override { return own_.HostBuffer(type); }
  Outputs Compute(std::function<Outputs()> work, const OutputTypes& types) override {
    return own_.Compute(std::move(work), types);
  }
  void Update(std::function<void()> work) override { own_.Update(std::move(work)); }
  void Prepare(std::function<void()> work) override { own_.Prepare(std::move(work)); }
  Result<std::vector<Duration>> Measure(const std::vector<std::function<void()>>& works) override {
    if (works.size() != measured_) {  // Not those of the last call once more.
      EXPECT_GE(runs_.count() - counted_, static_cast<int64_t>(works.size()));
      measured_ = works.size();
    }
    auto durations = own_.Measure(works);
    counted_ = runs_.count();
    return durations;
  }
  Copied Upload(at::Tensor host) override { return own_.Upload(std::move(host)); }
  Copied Download(at::Tensor value) override { return own_.Download(std::move(value)); }
  Mark DownloadInto(at::Tensor value, at::Tensor host) override {
    return own_.DownloadInto(std::move(value), std::move(host));
  }
  Result<std::shared_ptr<void>> RegisterHost(std::span<std::byte> memory) override {
    return own_.RegisterHost(memory);
  }
  void Await(const Mark& mark) override { own_.Await(mark); }
  Status Drain(Deadline deadline) override { return own_.Drain(deadline); }
  int64_t memory_in_use() const override { return own_.memory_in_use(); }
  int64_t memory_peak() const override { return own_.memory_peak(); }
  void ForgetPeak() override { own_.ForgetPeak(); }

  size_t measured() const { return measured_; }

 private:
  CpuDevice own_;
  const Progress& runs_;
  int64_t counted_ = 0;  ///< Runs by the end of the last measurement.
  size_t measured_ = 0;  ///< Works of the last one.
};

// A card that is held back while it measures may have to load code at the first run of a kernel, and
// then waits for as long as it is held back.
TEST(ProfilerTest, NothingRunsForTheFirstTimeWhileItIsMeasured) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kBF16, 0);
  Progress progress;
  WatchedDevice device(progress);
  ASSERT_TRUE(MeasureProfile(*program::WorkOf(graph), device, progress).ok());
  EXPECT_EQ(device.measured(), 1) << "an addition was measured last";
}

TEST(ProfilerTest, AnEmulatedProcessorTakesAsMuchLonger) {
  CpuDevice slow({.speed = 0.25});
  Duration held{};
  const auto durations = slow.Measure({[&] {
    const Duration begun = ThreadCpuTime();
    while (ThreadCpuTime() - begun < std::chrono::milliseconds(2)) {
    }
    held = ThreadCpuTime() - begun;
  }});
  ASSERT_TRUE(durations.ok());
  EXPECT_GE(durations->front(), 4 * held);
}

TEST(ProfilerTest, ADeviceThatIsLostIsNamed) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kF32, 0);
  FakeDevice lost({.error_in_work = 40});
  Progress progress;
  EXPECT_FALSE(MeasureProfile(*program::WorkOf(graph), lost, progress).ok());
}

TEST(DeviceMemoryTest, AnEmulatedMemoryIsNoLargerThanTheDevices) {
  CpuDevice processor;
  EXPECT_EQ(processor.memory_cap(), 0);
  processor.EmulateMemory(100);
  EXPECT_EQ(processor.memory_cap(), 100);
  FakeDevice card({.memory_bytes = 1000});
  EXPECT_EQ(card.memory_cap(), 1000);
  card.EmulateMemory(2000);
  EXPECT_EQ(card.memory_cap(), 1000);
  card.EmulateMemory(300);
  EXPECT_EQ(card.memory_cap(), 300);
  card.EmulateMemory(0);
  EXPECT_EQ(card.memory_cap(), 1000);
}

}  // namespace
}  // namespace heddle::runtime::testing
