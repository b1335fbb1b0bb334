#include "elastic/worker/measure/measure_worker.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "metrics/registry.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/graph/random_graph.h"

namespace heddle::elastic {
namespace {

class MeasureWorkerTest : public ::testing::Test {
 protected:
  Result<WorkerMeasurement> Measure(const std::string& worker, const job::Emulation& emulation) {
    runtime::CpuDevice device(
        {.speed = emulation.speed, .memory_cap_bytes = emulation.memory_bytes});
    return MeasureOn(device, worker, emulation);
  }
  Result<WorkerMeasurement> MeasureOn(runtime::Device& device,
                                      const std::string& worker,
                                      const job::Emulation& emulation) {
    const comm::EndpointOptions options{
        .config = {.worker = worker, .job = "measured", .secret = "secret", .transports = {"tcp"}},
        .metrics = &registry_};
    const MeasuredAs as{
        .worker = worker, .work = &work_, .emulation = emulation, .device = &device, .threads = 1};
    return MeasureWorker(as, kept_, options, progress_);
  }

  const program::ProfiledWork work_ = *program::WorkOf(testing::RandomGraph(1, DType::kF32));
  metrics::Registry registry_;
  KeptFiles kept_{""};
  Progress progress_;
};

TEST_F(MeasureWorkerTest, EmulatedWorkersOfAMachineDifferBySpeedAlone) {
  const auto fast = Measure("fast", {.speed = 0.8, .memory_bytes = 1 << 20});
  const int64_t runs = progress_.count();
  const auto slow = Measure("slow", {.speed = 0.2, .memory_bytes = 1 << 30});
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  ASSERT_TRUE(slow.ok()) << slow.status().ToString();
  EXPECT_GT(runs, 0);
  EXPECT_EQ(progress_.count(), runs) << "the second one ran kernels again";
  ASSERT_EQ(fast->profile.seconds.size(), slow->profile.seconds.size());
  for (const auto& [what, seconds] : fast->profile.seconds) {
    EXPECT_GT(seconds, 0) << what;
    EXPECT_NEAR(slow->profile.seconds.at(what) / seconds, 4, 1e-9) << what;
  }
  EXPECT_NEAR(fast->profile.bytes_per_second / slow->profile.bytes_per_second, 4, 1e-9);
  EXPECT_NEAR(slow->profile.instruction_seconds / fast->profile.instruction_seconds, 4, 1e-9);
  EXPECT_EQ(fast->profile_measured_at, slow->profile_measured_at);
  EXPECT_EQ(fast->profile.worker, "fast");
  EXPECT_EQ(slow->profile.worker, "slow");
  EXPECT_EQ(fast->profile.memory_bytes, 1 << 20);
  EXPECT_EQ(slow->profile.memory_bytes, 1 << 30);
  EXPECT_EQ(slow->speed, 0.2);
  EXPECT_EQ(LinkToJson(slow->link), LinkToJson(fast->link)) << "alike, and measured once";
  EXPECT_GT(fast->link.measured_at, 0);
}

TEST_F(MeasureWorkerTest, EveryRateOfALinkIsMeasured) {
  const auto fast = Measure("fast", {.speed = 0.5, .link_bytes_per_second = 400e6});
  const auto slow = Measure("slow", {.speed = 0.5, .link_bytes_per_second = 10e6});
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  ASSERT_TRUE(slow.ok()) << slow.status().ToString();
  EXPECT_LT(slow->link.link.bytes_per_second, fast->link.link.bytes_per_second);
}

TEST_F(MeasureWorkerTest, AWorkerOnACardSaysOnWhichAndWhatItMayUseThere) {
  constexpr int64_t kBytes = 64 << 20;
  for (const int64_t given : {int64_t{0}, int64_t{1} << 20}) {
    runtime::testing::FakeDevice card(
        {.memory_bytes = kBytes, .emulated_bytes = given, .card = "GPU-1"});
    const auto measured = MeasureOn(card, "a", {.memory_bytes = given});
    ASSERT_TRUE(measured.ok()) << measured.status().ToString();
    EXPECT_EQ(measured->card, "GPU-1");
    EXPECT_EQ(measured->card_bytes, kBytes);
    EXPECT_EQ(measured->profile.memory_bytes + measured->profile.scratch_bytes,
              given == 0 ? kBytes : given);
  }
  const auto processor = Measure("b", {.memory_bytes = 1 << 20});
  ASSERT_TRUE(processor.ok()) << processor.status().ToString();
  EXPECT_EQ(processor->card, "");
  EXPECT_EQ(processor->card_bytes, 0);
}

// A measurement moves more than many a job: summed with the job's traffic it would hide that.
TEST_F(MeasureWorkerTest, WhatItSendsIsNotTheJobs) {
  ASSERT_TRUE(Measure("quiet", {.speed = 0.5}).ok());
  EXPECT_TRUE(registry_.Collect().empty());
}

TEST_F(MeasureWorkerTest, AnEmulatedLinkIsSeen) {
  const auto slow = Measure("slow", {.speed = 0.5, .link_bytes_per_second = 5e6});
  ASSERT_TRUE(slow.ok()) << slow.status().ToString();
  EXPECT_GT(slow->link.link.bytes_per_second, 0);
  EXPECT_LE(slow->link.link.bytes_per_second, 2e7) << "the first bytes are free";
}

TEST_F(MeasureWorkerTest, AWorkerThatIsWhatItIsHasAProfileOfItsOwn) {
  ASSERT_TRUE(Measure("emulated", {.speed = 0.5}).ok());
  const int64_t runs = progress_.count();
  ASSERT_TRUE(Measure("real", {.speed = 1}).ok());
  EXPECT_GT(progress_.count(), runs);
}

}  // namespace
}  // namespace heddle::elastic
