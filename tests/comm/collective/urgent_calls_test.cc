// Over which of a pair's connections a collective sends its messages.
#include <algorithm>
#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "tests/comm/collective/played_member.h"

namespace heddle::comm {
namespace {

constexpr uint64_t kTag = 3;

class UrgentCallsTest : public PlayedMemberTest {
 protected:
  static bool HasMessage(Wire& wire) {
    return std::ranges::any_of(wire.Frames(), [](const FrameHeader& frame) {
      return frame.kind == FrameKind::kEager && frame.tag == kTag;
    });
  }
  /// Exchanges four bytes with the other member, which sends none.
  void ExchangeInVain(bool urgent) {
    std::thread member([&] {
      const std::array<int64_t, 2> counts{0, 1};
      const Bytes input(4);
      Bytes output(4);
      const Status status =
          communicator_->AllToAll(input, counts, output, counts, DType::kF32,
                                  {.group = {}, .tag = kTag, .deadline = {}, .urgent = urgent});
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
    });
    const Deadline deadline = After(kPatience);
    while (!HasMessage(*urgent_) && !HasMessage(*bulk_) && Now() < deadline) {
      std::this_thread::yield();
    }
    communicator_->Abort(AbortedError("enough was seen"));
    member.join();
  }
};

TEST_F(UrgentCallsTest, SendOverTheUrgentConnection) {
  ExchangeInVain(/*urgent=*/true);
  EXPECT_TRUE(HasMessage(*urgent_));
  EXPECT_FALSE(HasMessage(*bulk_));
}

TEST_F(UrgentCallsTest, OthersSendOverThatOfBulk) {
  ExchangeInVain(/*urgent=*/false);
  EXPECT_TRUE(HasMessage(*bulk_));
  EXPECT_FALSE(HasMessage(*urgent_));
}

}  // namespace
}  // namespace heddle::comm
