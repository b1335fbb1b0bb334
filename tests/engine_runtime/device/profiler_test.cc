/// \file
/// Goal: a profile has a time for all that a planner prices, on every kind of device, and measuring
/// it changes nothing of the device.
#include "engine/runtime/profiler.h"

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
