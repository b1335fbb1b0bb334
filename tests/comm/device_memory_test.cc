// Memory of other devices: where nothing can access it, its messages fail alone, at both ends, and
// nobody touches it; where a transport places messages there, a trial says whether they arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "comm/communicator.h"
#include "tests/comm/cluster.h"
#include "tests/support/local_transport/exported_memory.h"
#include "tests/support/local_transport/placing_transport.h"

namespace heddle::comm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRoom = size_t{1} << 20;

class DeviceMemoryTest : public ::testing::TestWithParam<Media> {};

/// Those that the product has.
std::vector<Media> OtherMedia() {
  std::vector<Media> media = MediaHere({});
  std::erase_if(media, [](const Media& one) { return one.name == "placing"; });
  return media;
}

INSTANTIATE_TEST_SUITE_P(Media,
                         DeviceMemoryTest,
                         ::testing::ValuesIn(OtherMedia()),
                         [](const auto& media) { return MediaName(media.param); });

// Small messages, which are sent at once, and large ones, which are announced; whichever is first.
TEST_P(DeviceMemoryTest, AMessageThatCannotBePlacedFailsAloneAtBothEnds) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom);
    const auto buffer = cluster.endpoint(rank).ImportDeviceMemory(device.memory());
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    EXPECT_EQ(buffer->bytes().data(), device.bytes().data());
    Bytes host(kRoom, std::byte{1});
    uint64_t tag = 0;
    const int peer = 1 - rank;
    for (const size_t size : {size_t{1}, size_t{1000}, kRoom}) {
      for (const bool posted : {false, true}) {
        for (const bool sends : {false, true}) {
          for (const bool receives : {false, true}) {
            if (!sends && !receives) {
              continue;
            }
            ++tag;
            const auto from = (sends ? buffer->bytes() : std::span(host)).first(size);
            const auto to = (receives ? buffer->bytes() : std::span(host)).first(size);
            if (rank == 0) {
              ASSERT_TRUE(!posted || communicator.Barrier({}).ok());
              const Status status = communicator.Send(peer, tag, from, false).Wait(After(kAmple));
              EXPECT_TRUE(status.code() == StatusCode::kUnimplemented ||
                          (status.ok() && !sends && size <= 1000))
                  << status.ToString();
              ASSERT_TRUE(posted || communicator.Barrier({}).ok());
            } else {
              const Work work = communicator.Recv(peer, tag, to, false);
              ASSERT_TRUE(!posted || communicator.Barrier({}).ok());
              const Status status = work.Wait(After(kAmple));
              EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
              EXPECT_THAT(status.message(), HasSubstr("worker-0"));
              ASSERT_TRUE(posted || communicator.Barrier({}).ok());
            }
            ASSERT_TRUE(communicator.Barrier({}).ok());
          }
        }
      }
    }
    // The group is as it was.
    Bytes message(kRoom, static_cast<std::byte>(rank));
    const Work in = communicator.Recv(peer, tag, host, true);
    ASSERT_TRUE(communicator.Send(peer, tag, message, true).Wait().ok());
    ASSERT_TRUE(in.Wait().ok());
    EXPECT_EQ(host, Bytes(kRoom, static_cast<std::byte>(peer)));
    EXPECT_EQ(device.Read(0, kRoom), Bytes(kRoom));
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_P(DeviceMemoryTest, ATrialSaysSoAtBothEnds) {
  Cluster cluster(2, GetParam());
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom);
    const auto buffer = cluster.endpoint(rank).ImportDeviceMemory(device.memory());
    ASSERT_TRUE(buffer.ok());
    for (const bool one_has_none : {false, true}) {
      const DeviceTrial trial = one_has_none && rank == 0 ? DeviceTrial{} : device.Trial();
      const Status status =
          cluster.endpoint(rank).TryDeviceMemory(communicator, 1 - rank, 7, trial, After(kAmple));
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

class PlacedDeviceMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    testing::Placing().refuses = testing::PlacingFaults::Refusal::kNone;
    testing::Placing().loses = false;
  }
};

TEST_F(PlacedDeviceMemoryTest, ATrialSaysTheSameAtBothEnds) {
  Cluster cluster(2, Only("placing"));
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom);
    const auto buffer = cluster.endpoint(rank).ImportDeviceMemory(device.memory());
    ASSERT_TRUE(buffer.ok());
    const auto trial = [&](bool has_memory) {
      const Status status = cluster.endpoint(rank).TryDeviceMemory(
          communicator, 1 - rank, 7, has_memory ? device.Trial() : DeviceTrial{}, After(kAmple));
      EXPECT_TRUE(communicator.Barrier({}).ok());
      return status;
    };
    testing::Placing().refuses = testing::PlacingFaults::Refusal::kNew;
    EXPECT_EQ(trial(true).code(), StatusCode::kUnimplemented) << "nothing is registered";
    testing::Placing().refuses = testing::PlacingFaults::Refusal::kNone;
    EXPECT_TRUE(trial(true).ok());
    EXPECT_THAT(trial(rank == 0).message(), HasSubstr("no device memory"));
    testing::Placing().loses = true;
    EXPECT_THAT(trial(true).message(), HasSubstr("of the pattern that worker-"));
    testing::Placing().loses = false;
    EXPECT_TRUE(trial(true).ok());
  });
}

TEST_F(PlacedDeviceMemoryTest, MemoryThatWasRegisteredIsUsedWhereNoMoreIs) {
  Cluster cluster(2, Only("placing"));
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory early(kRoom);
    const ExportedMemory late(kRoom);
    const auto first = cluster.endpoint(rank).ImportDeviceMemory(early.memory());
    const auto second = cluster.endpoint(rank).ImportDeviceMemory(late.memory());
    ASSERT_TRUE(first.ok() && second.ok());
    const int peer = 1 - rank;
    Bytes host(kRoom);
    EXPECT_EQ(communicator.RegisterDeviceMemory(peer, host, true).code(),
              StatusCode::kUnimplemented);
    EXPECT_TRUE(communicator.RegisterDeviceMemory(peer, first->bytes().subspan(5), true).ok());
    ASSERT_TRUE(communicator.Barrier({}).ok());
    testing::Placing().refuses = testing::PlacingFaults::Refusal::kNew;
    EXPECT_FALSE(communicator.RegisterDeviceMemory(peer, second->bytes(), true).ok());
    early.Write(0, Bytes(kRoom, std::byte{9}));
    const auto pass = [&](std::span<std::byte> bytes) {
      return (rank == 0 ? communicator.Send(1, 1, bytes, true)
                        : communicator.Recv(0, 1, bytes, true))
          .Wait(After(kAmple));
    };
    EXPECT_TRUE(pass(first->bytes()).ok());
    EXPECT_EQ(early.Read(0, kRoom), Bytes(kRoom, std::byte{9}));
    EXPECT_EQ(pass(second->bytes()).code(), StatusCode::kUnimplemented);
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

}  // namespace
}  // namespace heddle::comm
