// A gather of records from a member that says what no member says: every length and number of its
// is checked before it is used.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collective/collective.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/message/call_signature.h"
#include "comm/stream/event_loop.h"
#include "tests/comm/message/wire.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

constexpr Duration kPatience = std::chrono::minutes(2);
constexpr size_t kHeadBytes = 1024;

template <typename T>
void Put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
/// A record as it travels.
std::string Record(uint32_t position, uint32_t size, const std::string& bytes) {
  std::string text;
  Put(text, position);
  Put(text, size);
  return text + bytes;
}
/// A first message: the total, then the content.
std::string Head(uint64_t total, const std::string& content) {
  std::string text;
  Put(text, total);
  text += content;
  text.resize(kHeadBytes);
  return text;
}

/// Worker 0 of two, whose child the test plays.
class HostileGatherTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Create();
    GroupOptions options;
    options.generation = 7;
    options.operation_timeout = kPatience;
    for (int rank = 0; rank < 2; ++rank) {
      options.members.push_back({"worker-" + std::to_string(rank), "heddle1;host=h"});
    }
    options.peers = {1};
    auto group = std::make_shared<Group>(loop_, std::move(options),
                                         std::make_shared<SharedRegions>(nullptr));
    for (const TrafficClass traffic_class : kEachTrafficClass) {
      ChannelOptions channel;
      channel.peer = 1;
      channel.traffic_class = traffic_class;
      channel.peer_name = "worker-1";
      channel.generation = 7;
      channel.operation_timeout = kPatience;
      channel.outgoing = channel.incoming = bucket_;
      channel.sent_bytes = channel.received_bytes = &bytes_;
      channel.lost = &lost_;
      channel.open = open_;
      group->Attach(std::make_unique<WireEnd>(
                        traffic_class == TrafficClass::kUrgent ? urgent_ : bulk_, false),
                    std::move(channel));
    }
    ASSERT_TRUE(group->WaitFormed(Now()).ok());
    communicator_ = MakeCommunicator(std::move(group));
  }
  void TearDown() override {
    communicator_.reset();
    urgent_->End();
    bulk_->End();
    open_->WaitForNone(After(kPatience));
    loop_->Stop();
  }
  /// What the gather comes to when the child says this on its way up.
  Result<std::vector<Bytes>> GatherWith(const std::string& head) {
    FrameHeader frame;
    frame.generation = 7;
    frame.kind = FrameKind::kEager;
    frame.length = static_cast<uint32_t>(head.size());
    frame.total = head.size();
    frame.tag = 3;
    frame.space =
        (static_cast<uint64_t>(Phase::kGatherUp) << (kSignatureBits + kMajorBits + kMinorBits)) |
        SpaceOf(EncodeSignature({.kind = CallKind::kAllGatherBytes}));
    urgent_->Give(frame, head);
    bulk_->Give(frame, head);  // Whichever of them it is that gathers.
    CollectiveOptions options;
    options.tag = 3;
    const Bytes mine{std::byte{'a'}};
    return communicator_->AllGatherBytes(mine, options);
  }
  void ExpectRefused(const std::string& head, const std::string& message) {
    const auto records = GatherWith(head);
    EXPECT_EQ(records.status().code(), StatusCode::kDataLoss) << records.status().ToString();
    EXPECT_THAT(records.status().message(), HasSubstr(message));
  }

  const std::shared_ptr<Wire> urgent_ = std::make_shared<Wire>();
  const std::shared_ptr<Wire> bulk_ = std::make_shared<Wire>();
  const std::shared_ptr<TokenBucket> bucket_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
  metrics::Counter bytes_;
  metrics::Counter lost_;
  std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Communicator> communicator_;
};

TEST_F(HostileGatherTest, AMemberOfGoodWillIsHeard) {
  const std::string record = Record(1, 2, "xy");
  const auto records = GatherWith(Head(record.size(), record));
  ASSERT_TRUE(records.ok()) << records.status().ToString();
  EXPECT_EQ((*records)[0], Bytes{std::byte{'a'}});
  EXPECT_EQ((*records)[1], (Bytes{std::byte{'x'}, std::byte{'y'}}));
}

TEST_F(HostileGatherTest, APositionThatNobodyHasIsRefused) {
  const std::string record = Record(2, 2, "xy");
  ExpectRefused(Head(record.size(), record), "a gather with record 2 of 2");
}

TEST_F(HostileGatherTest, APositionFarOutsideIsRefused) {
  const std::string record = Record(0xFFFFFFF0U, 2, "xy");
  ExpectRefused(Head(record.size(), record), "a gather with record 4294967280 of 2");
}

TEST_F(HostileGatherTest, ARecordThatIsThereAlreadyIsRefused) {
  const std::string record = Record(0, 2, "xy");
  ExpectRefused(Head(record.size(), record), "a gather with record 0 of 2");
}

TEST_F(HostileGatherTest, ARecordThatIsLongerThanTheContentIsRefused) {
  const std::string record = Record(1, 3, "xy");
  EXPECT_FALSE(GatherWith(Head(record.size(), record)).ok());
}

TEST_F(HostileGatherTest, ATotalThatIsTooLargeIsRefusedBeforeItIsMadeRoomFor) {
  constexpr uint64_t kMax = (uint64_t{64} << 20) + 2 * 8;
  ExpectRefused(Head(kMax + 1, ""), "a gather of " + std::to_string(kMax + 1) + " bytes");
}

TEST_F(HostileGatherTest, WhoSaysThatItHasTooMuchEndsItForAll) {
  const auto records = GatherWith(Head(~uint64_t{0}, ""));
  EXPECT_EQ(records.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(records.status().message(), HasSubstr("larger than 67108864 bytes in sum"));
}

}  // namespace
}  // namespace heddle::comm
