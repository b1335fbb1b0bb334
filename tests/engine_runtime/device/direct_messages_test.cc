/// \file
/// Goal: messages that lie in the devices' own memory change nothing. Training on fake devices that
/// export their memory, over a transport that places messages in it, gives the processor's bits;
/// where a trial, a flush or a registration fails, too, or the run ends.
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/device_memory.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device_tensors.h"
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
    std::atomic<size_t> tried = 0;
    options.after_trial = [&](int /*rank*/) {
      if (++tried == plan_.workers.size()) {  // Before, a trial would be lost, and not a step.
        Placing().lasts = Placing().to_device + 5 * kMessage;
      }
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

/// One of two workers that have agreed.
struct Agreed {
  explicit Agreed(int rank)
      : device(
            {.seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank), .exports = true}) {
    auto made = comm::Endpoint::Create(
        {.config = {.worker = fmt::format("w{}", rank), .job = "test", .secret = "secret"},
         .open = {"placing", "tcp"},
         .metrics = &registry});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    endpoint = *std::move(made);
    tensors = std::make_unique<DeviceTensors>(*endpoint, device);
  }
  void Agree(int rank, const std::vector<comm::GroupMember>& members) {
    const Deadline deadline = After(std::chrono::seconds(60));
    auto made = endpoint->Connect(
        {.generation = 1, .rank = rank, .members = members, .peers = {1 - rank}}, deadline);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    group = *std::move(made);
    EXPECT_TRUE(tensors->Agree(*group, {1 - rank}, 1, deadline).ok());
  }

  metrics::Registry registry;
  FakeDevice device;
  std::unique_ptr<comm::Endpoint> endpoint;
  std::unique_ptr<DeviceTensors> tensors;
  std::unique_ptr<comm::Communicator> group;
};

// A card keeps no tensor for a kernel that was launched: the work here has its address alone.
TEST(DeviceTensorsTest, MemoryServesAgainOnceTheComputeHasEndedThatUsesIt) {
  const graph::TensorType type{DType::kF32, {int64_t{64} << 10}};
  std::array<Agreed, 2> workers{Agreed(0), Agreed(1)};
  const std::vector<comm::GroupMember> members{
      {.name = "w0", .address = workers[0].endpoint->address()},
      {.name = "w1", .address = workers[1].endpoint->address()}};
  std::thread other([&] { workers[1].Agree(1, members); });
  workers[0].Agree(0, members);
  other.join();
  DeviceTensors& tensors = *workers[0].tensors;
  FakeDevice& device = workers[0].device;

  EXPECT_FALSE(tensors.Empty(1, {DType::kF32, {100}}).defined()) << "small";
  EXPECT_FALSE(tensors.Empty(0, type).defined()) << "no peer";
  at::Tensor first = tensors.Empty(1, type);
  ASSERT_TRUE(first.defined());
  auto* const place = static_cast<float*>(first.data_ptr());
  float seen = 0;
  device.Prepare([place] { *place = 7; });
  device.Prepare([place, &seen] { seen = *place; });
  first.reset();
  at::Tensor second = tensors.Empty(1, type);
  EXPECT_NE(second.data_ptr(), place);
  ASSERT_TRUE(device.Drain(After(std::chrono::seconds(60))).ok());
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(tensors.Empty(1, type).data_ptr(), place);
  second.reset();
  workers[0].tensors.reset();  // Tensors are gone before their device.
  workers[1].tensors.reset();
}

}  // namespace
}  // namespace heddle::runtime::testing
