/// \file
/// Goal: the runtime asks nothing of a device but what it promises. Training on fake devices, which
/// do everything as late as they may, gives the processor's losses and weights bit for bit under
/// unlike plans; on devices that break a promise it does not, and ends.
#include <bit>
#include <cstdint>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/device/kept_promises.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

std::vector<std::pair<std::string, program::Plan>> AllPlans() {
  auto plans = UnlikePlans();
  plans.insert(plans.begin(),
               {"one worker", program::SingleWorkerPlan("w0", kSegments, kMicrobatches)});
  return plans;
}

TrainingOptions OnProcessor(int64_t steps) {
  return {.steps = steps,
          .make_device = [](int /*rank*/) { return std::make_unique<CpuDevice>(); }};
}

TrainingOptions OnFake(int64_t steps, const FakeOptions& fake) {
  return {.steps = steps,
          .make_device =
              [fake](int rank) {
                FakeOptions own = fake;
                own.seed += static_cast<uint64_t>(rank);
                return std::make_unique<FakeDevice>(own);
              },
          .after_steps =
              [](Device& device) {  // Weights come from, and go to, memory of others.
                EXPECT_EQ(dynamic_cast<FakeDevice&>(device).host_memory().pageable_copies(), 0);
              },
          .look_at = ExpectKeptPromises};
}

void ExpectSameBits(const Trained& fake, const Trained& processor) {
  ASSERT_TRUE(fake.status.ok()) << fake.status.ToString();
  ASSERT_EQ(fake.losses.size(), processor.losses.size());
  for (size_t i = 0; i < fake.losses.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>(fake.losses[i]), std::bit_cast<uint64_t>(processor.losses[i]))
        << "step " << i + 1;
  }
  EXPECT_EQ(fake.masters, processor.masters);
}

class FakeTrainingTest : public ::testing::TestWithParam<std::tuple<graph::ModelFamily, DType>> {};

TEST_P(FakeTrainingTest, GivesTheProcessorsBitsUnderEveryPlan) {
  const auto [family, compute] = GetParam();
  const graph::Graph graph =
      SmallModel(family, compute, family == graph::ModelFamily::kGpt2 ? 0.1 : 0.0);
  const auto steps = heddle::testing::Scaled<int64_t>(2, 4, 12);
  const uint64_t seed = heddle::testing::TestSeed();
  for (const auto& [name, plan] : AllPlans()) {
    SCOPED_TRACE(fmt::format("{}, seed {}", name, seed));
    const Trained processor = Train(graph, plan, OnProcessor(steps));
    ASSERT_TRUE(processor.status.ok()) << processor.status.ToString();
    TrainingOptions fake = OnFake(steps, {.seed = seed});
    const Trained by_devices = Train(graph, plan, fake);
    ExpectSameBits(by_devices, processor);
    EXPECT_EQ(by_devices.device_sums > 0, plan.workers.size() > 1);
    fake = OnFake(steps, {.seed = seed, .has_peers = false});
    fake.slabs = true;
    const Trained by_host = Train(graph, plan, fake);
    ExpectSameBits(by_host, processor);
    EXPECT_EQ(by_host.device_sums, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    FakeTrainingTest,
    ::testing::Combine(::testing::Values(graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2),
                       ::testing::Values(DType::kF32, DType::kBF16)),
    [](const auto& parameter) {
      return fmt::format(
          "{}{}", std::get<0>(parameter.param) == graph::ModelFamily::kLlama ? "Llama" : "Gpt2",
          DTypeName(std::get<1>(parameter.param)));
    });

// The runtime's own care: what a device does wrong here is what a runtime would meet that forgot to
// wait, to keep or to order what it has to.
TEST(FakeTrainingFaultsTest, BrokenPromisesChangeWhatIsTrained) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kF32, 0.0);
  const program::Plan plan = UnlikePlans()[0].second;
  const Trained processor = Train(graph, plan, OnProcessor(2));
  for (const Fault fault :
       {Fault::kUploadSourceFreed, Fault::kDownloadSourceFreed, Fault::kDownloadEarly,
        Fault::kDownloadOneWorkEarly, Fault::kDownloadAfterUploads, Fault::kDownloadSkipped,
        Fault::kDownloadHalf, Fault::kUploadSkipped, Fault::kUploadHalf, Fault::kAwaitForgotten,
        Fault::kAwaitLate, Fault::kMarkEndsAtOnce, Fault::kMarkOfCompute, Fault::kWaitGivesUp,
        Fault::kOutputsLost, Fault::kPeerSumReversed}) {
    TrainingOptions options = OnFake(2, {.seed = heddle::testing::TestSeed(), .fault = fault});
    options.look_at = [](Device& /*device*/) {};
    const Trained broken = Train(graph, plan, options);
    EXPECT_FALSE(broken.status.ok() && broken.losses == processor.losses &&
                 broken.masters == processor.masters)
        << "fault " << static_cast<int>(fault);
  }
}

TEST(FakeTrainingFaultsTest, ALostDeviceEndsTheRunWithItsError) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kF32, 0.0);
  for (const auto& [name, plan] : AllPlans()) {
    SCOPED_TRACE(name);
    for (const int64_t copy : {1, 7, 20}) {
      TrainingOptions options =
          OnFake(4, {.seed = heddle::testing::TestSeed(), .lost_in_copy = copy});
      options.look_at = [](Device& /*device*/) {};
      EXPECT_FALSE(Train(graph, plan, options).status.ok());
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
