/// \file
/// Goal: messages that lie in the devices' own memory change nothing. Training on fake devices that
/// export their memory, over a transport that places messages in it, gives the processor's bits;
/// where a trial, a flush or a registration fails, too, or the run ends.
#include <bit>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/endpoint/device_trial.h"
#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/device/kept_promises.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/local_transport/placing_transport.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using comm::testing::Placing;
using Refusal = comm::testing::PlacingFaults::Refusal;

constexpr int64_t kSteps = 2;
/// Activations of 2 x 128 x 32 elements of fp32 take program::kLeastSharedBytes.
constexpr int64_t kLength = 128;
constexpr int64_t kMessage = 2 * kLength * 32 * 4;

TrainingOptions OnProcessor() {
  return {.steps = kSteps,
          .make_device = [](int /*rank*/) { return std::make_unique<CpuDevice>(); }};
}

/// Of each rank's device: what it does otherwise than the others.
using Change = std::function<void(int rank, FakeOptions& options)>;

TrainingOptions Direct(const Change& change = [](int, FakeOptions&) {}) {
  return {.steps = kSteps,
          .slabs = true,
          .direct = true,
          .make_device =
              [change](int rank) {
                FakeOptions own{.seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank),
                                .exports = true};
                change(rank, own);
                return std::make_unique<FakeDevice>(own);
              },
          .look_at = ExpectKeptPromises};
}

class DirectMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Placing().to_device = 0;
    ASSERT_TRUE(processor_.status.ok()) << processor_.status.ToString();
  }
  void TearDown() override {
    Placing().refuses = Refusal::kNone;
    Placing().loses = false;
  }

  void ExpectProcessorsBits(const Trained& trained) const {
    ASSERT_TRUE(trained.status.ok()) << trained.status.ToString();
    ASSERT_EQ(trained.losses.size(), processor_.losses.size());
    for (size_t i = 0; i < trained.losses.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>(trained.losses[i]),
                std::bit_cast<uint64_t>(processor_.losses[i]))
          << "step " << i + 1;
    }
    EXPECT_EQ(trained.masters, processor_.masters);
  }
  const graph::Graph graph_ = SmallModel(graph::ModelFamily::kLlama, DType::kF32, 0.0, kLength);
  const program::Plan plan_ = UnlikePlans()[1].second;  // Four stages in a row.
  const Trained processor_ = Train(graph_, plan_, OnProcessor());
};

TEST_F(DirectMessagesTest, GiveTheProcessorsBits) {
  ExpectProcessorsBits(Train(graph_, plan_, Direct()));
  // Both ways: a trial's patterns in both traffic classes, between neighbours and between the ends
  // of the pipeline, which share the embedding; and the messages over three cuts.
  constexpr int64_t kTrial = 2 * int64_t{comm::kTrialBytes / 2};
  EXPECT_EQ(Placing().to_device, 2 * (4 * kTrial + 3 * kSteps * kMicrobatches * kMessage));
}

TEST_F(DirectMessagesTest, ADeviceThatExportsNoneIsServedThroughTheHost) {
  ExpectProcessorsBits(
      Train(graph_, plan_, Direct([](int rank, FakeOptions& own) { own.exports = rank != 1; })));
  // Worker 1 has two of the three cuts.
  EXPECT_GT(Placing().to_device, 0);
}

TEST_F(DirectMessagesTest, WritesThatNoFlushShowsAreSeenByTheTrial) {
  ExpectProcessorsBits(
      Train(graph_, plan_, Direct([](int /*rank*/, FakeOptions& own) { own.flushes = false; })));
}

TEST_F(DirectMessagesTest, WritesThatAreLostAreSeenByTheTrial) {
  Placing().loses = true;
  ExpectProcessorsBits(Train(graph_, plan_, Direct()));
}

TEST_F(DirectMessagesTest, MemoryThatIsNotRegisteredAfterTheTrialIsTheHosts) {
  TrainingOptions options = Direct();
  options.after_trial = [](int rank) {
    if (rank == 1) {  // The others go on with memory of their devices.
      comm::testing::RefuseDeviceMemoryHere();
    }
  };
  ::testing::internal::CaptureStderr();
  ExpectProcessorsBits(Train(graph_, plan_, options));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::HasSubstr("no more device memory is registered"));
  EXPECT_GT(Placing().to_device, 0);
}

// In a process of its own, which uses no device memory any more afterwards.
TEST_F(DirectMessagesTest, RegistrationsThatAreLostInAStepEndItAndTheNextGoesThroughTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose = [this] {
    TrainingOptions options = Direct();
    options.after_trial = [](int /*rank*/) {
      Placing().lasts = Placing().to_device + 5 * kMessage;
    };
    options.look_at = [](Device& /*device*/) {};
    EXPECT_FALSE(Train(graph_, plan_, options).status.ok());
    Placing().lasts = INT64_MAX;
    Placing().to_device = 0;
    ExpectProcessorsBits(Train(graph_, plan_, Direct()));
    EXPECT_EQ(Placing().to_device, 0);
    std::exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0),
              "all messages go through the host's memory from now on");
}

}  // namespace
}  // namespace heddle::runtime::testing
