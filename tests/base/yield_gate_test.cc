// When a wait gives its core away, on a clock that the test moves.
#include "base/system/yield_gate.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class YieldGateTest : public testing::Test {
 protected:
  void Yield(Duration took) {
    const Time before = now_;
    now_ += took;
    gate_.Yielded(before, now_);
  }
  /// For how long from now the gate stays closed, to the millisecond.
  milliseconds ClosedFor() const {
    milliseconds closed{0};
    while (!gate_.IsOpen(now_ + closed)) {
      ++closed;
    }
    return closed;
  }

  Time now_ = Time(std::chrono::hours(1));
  YieldGate gate_;
};

TEST_F(YieldGateTest, ShortYieldsLeaveItOpen) {
  for (int i = 0; i < 1000; ++i) {
    Yield(microseconds(900));
    EXPECT_TRUE(gate_.IsOpen(now_));
  }
}

TEST_F(YieldGateTest, ALongYieldClosesItForAWhile) {
  Yield(milliseconds(2));
  EXPECT_EQ(ClosedFor(), YieldGate::kShortest);
  EXPECT_TRUE(gate_.IsOpen(now_ + YieldGate::kShortest));
}

TEST_F(YieldGateTest, WhoKeepsTheCoresBusyIsTriedEverMoreRarely) {
  for (const int expected : {5, 10, 20, 40, 80, 160, 200, 200}) {
    Yield(milliseconds(3));
    EXPECT_EQ(ClosedFor().count(), expected);
    now_ += milliseconds(expected);
  }
}

TEST_F(YieldGateTest, ADisturbanceThatIsOverIsForgotten) {
  for (int i = 0; i < 4; ++i) {
    Yield(milliseconds(3));
    now_ += ClosedFor();
  }
  for (const int expected : {20, 10, 5, 5}) {
    now_ += std::chrono::seconds(1);
    Yield(milliseconds(3));
    EXPECT_EQ(ClosedFor().count(), expected);
  }
}

}  // namespace
}  // namespace heddle
