// Lost workers of `train` are started again, those that keep ending later each time.
#include "elastic/service/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class RestartsTest : public testing::Test {
 protected:
  // The seconds that it waits after a life of so many.
  double WaitAfter(Duration life) {
    restarts_.Started("a", now_);
    now_ += life;
    restarts_.Ended("a", now_);
    const Time due = restarts_.NextDue().value_or(now_);
    EXPECT_EQ(restarts_.NextDue(), due);
    EXPECT_THAT(restarts_.TakeDue(due - milliseconds(1)), IsEmpty());
    EXPECT_THAT(restarts_.TakeDue(due), ElementsAre("a"));
    EXPECT_THAT(restarts_.TakeDue(due + seconds(100)), IsEmpty()) << "once";
    const double waited = Seconds(due - now_);
    now_ = due;
    return waited;
  }

  Time now_{seconds(1000)};
  Restarts restarts_;
};

TEST_F(RestartsTest, WhoLivedLongIsStartedAtOnce) {
  EXPECT_EQ(WaitAfter(seconds(10)), 0);
  EXPECT_EQ(WaitAfter(seconds(3600)), 0);
}

TEST_F(RestartsTest, WhoKeepsEndingWaitsLongerEachTimeUpToAMinute) {
  for (const double expected : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(WaitAfter(milliseconds(9999)), expected);
  }
  EXPECT_EQ(WaitAfter(seconds(10)), 0);
  EXPECT_EQ(WaitAfter(seconds(1)), 1) << "as good as new";
}

TEST_F(RestartsTest, EachWorkerWaitsForItself) {
  restarts_.Started("a", now_);
  restarts_.Started("b", now_);
  restarts_.Ended("a", now_ + seconds(1));
  restarts_.Ended("b", now_ + seconds(20));
  EXPECT_EQ(restarts_.NextDue(), now_ + seconds(2));
  EXPECT_THAT(restarts_.TakeDue(now_ + seconds(20)), ElementsAre("a", "b"));
  EXPECT_EQ(restarts_.NextDue(), std::nullopt);
}

}  // namespace
}  // namespace heddle::elastic
