// A gather of records from a member that says what no member says: every length and number of its
// is checked before it is used.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collective/collective.h"
#include "comm/message/call_signature.h"
#include "tests/comm/collective/played_member.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

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
class HostileGatherTest : public PlayedMemberTest {
 protected:
  /// What the gather comes to when the child says this on its way up.
  Result<std::vector<Bytes>> GatherWith(const std::string& head) {
    FrameHeader frame;
    frame.generation = kPlayedGeneration;
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
