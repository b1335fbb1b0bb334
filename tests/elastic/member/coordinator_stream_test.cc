// When a heartbeat is due, and when a coordinator that is silent is given up.
#include "elastic/member/coordinator_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class CoordinatorStreamTest : public testing::Test {
 protected:
  void BeginJob(double heartbeat, double wait) {
    wire::Welcome welcome;
    welcome.set_heartbeat_seconds(heartbeat);
    welcome.set_coordinator_wait_seconds(wait);
    stream_.BeginJob(welcome);
  }

  const Time begin_{seconds(100)};
  CoordinatorStream stream_{seconds(60), begin_};
};

TEST_F(CoordinatorStreamTest, AHeartbeatIsDueEachPeriodWhileConnected) {
  EXPECT_FALSE(stream_.TakeHeartbeat(begin_ + seconds(5))) << "there is no stream";
  stream_.Connect(begin_);
  EXPECT_FALSE(stream_.TakeHeartbeat(begin_ + milliseconds(199)));
  EXPECT_TRUE(stream_.TakeHeartbeat(begin_ + milliseconds(200)));
  EXPECT_FALSE(stream_.TakeHeartbeat(begin_ + milliseconds(399)));
  BeginJob(1.5, 10);
  EXPECT_TRUE(stream_.TakeHeartbeat(begin_ + milliseconds(400)));
  EXPECT_FALSE(stream_.TakeHeartbeat(begin_ + milliseconds(1899)));
  EXPECT_TRUE(stream_.TakeHeartbeat(begin_ + milliseconds(1900)));
  BeginJob(0, 10);
  EXPECT_FALSE(stream_.TakeHeartbeat(begin_ + milliseconds(3399))) << "the period stays";
}

TEST_F(CoordinatorStreamTest, EachStreamIsWelcomedAnew) {
  stream_.Connect(begin_);
  EXPECT_FALSE(stream_.welcomed());
  stream_.Welcome();
  EXPECT_TRUE(stream_.welcomed());
  stream_.Connect(begin_);
  EXPECT_FALSE(stream_.welcomed());
  stream_.Welcome();
  stream_.Disconnect();
  EXPECT_FALSE(stream_.welcomed());
}

TEST_F(CoordinatorStreamTest, ItIsGivenUpSoLongAfterItsLastWord) {
  EXPECT_EQ(stream_.GiveUp(begin_ + milliseconds(59'999)), std::nullopt);
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(60)), "no word from the coordinator for 60 s");
  stream_.NoteHeard(begin_ + seconds(50));
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(109)), std::nullopt);
  BeginJob(0.2, 10);
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(59)), std::nullopt);
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(60)), "no word from the coordinator for 10 s");
}

TEST_F(CoordinatorStreamTest, ARefusalIsNoWordAndIsNewOnce) {
  EXPECT_TRUE(stream_.Refuse("the name is taken", 0, begin_));
  EXPECT_FALSE(stream_.Refuse("the name is taken", 0, begin_));
  EXPECT_TRUE(stream_.Refuse("another job", 0, begin_));
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(60)),
            "refused by the coordinator for 60 s: another job");
  stream_.NoteHeard(begin_);
  EXPECT_THAT(*stream_.GiveUp(begin_ + seconds(60)), HasSubstr("no word"));
  EXPECT_TRUE(stream_.Refuse("another job", 0, begin_));
}

TEST_F(CoordinatorStreamTest, WhoIsHeldOffWaitsUntilItMayCome) {
  EXPECT_TRUE(stream_.Refuse("held off for 100 s", 100, begin_));
  EXPECT_EQ(stream_.NextDeadline(/*running=*/false), begin_ + seconds(160));
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(159)), std::nullopt);
  EXPECT_EQ(stream_.GiveUp(begin_ + seconds(160)),
            "refused by the coordinator for 60 s: held off for 100 s");
  stream_.Refuse("held off for ever", 1e300, begin_);
  EXPECT_EQ(stream_.NextDeadline(/*running=*/false), begin_ + seconds(86'460)) << "a day";
}

TEST_F(CoordinatorStreamTest, WhoTrainsWaitsForNoCoordinator) {
  EXPECT_EQ(stream_.NextDeadline(/*running=*/true), std::nullopt);
  EXPECT_EQ(stream_.NextDeadline(/*running=*/false), begin_ + seconds(60));
  stream_.Connect(begin_ + seconds(1));
  EXPECT_EQ(stream_.NextDeadline(/*running=*/true), begin_ + milliseconds(1200));
  EXPECT_EQ(stream_.NextDeadline(/*running=*/false), begin_ + milliseconds(1200));
  stream_.Connect(begin_ + seconds(70));
  EXPECT_EQ(stream_.NextDeadline(/*running=*/false), begin_ + seconds(60));
}

}  // namespace
}  // namespace heddle::elastic
