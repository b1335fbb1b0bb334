// How long a worker that is given up again and again waits.
#include "elastic/worker/restart_wait.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(RestartWaitTest, EachTimeInARowWaitsTwiceAsLongUpToAMinute) {
  std::string text;
  double now = 1000;
  for (const double wait : {0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0}) {
    const RestartWait next = NextRestartWait(text, now);
    EXPECT_EQ(next.seconds, wait);
    text = next.text;
    now += wait + 1;
  }
}

TEST(RestartWaitTest, WhoeverKeptItsPlaceForTenMinutesIsAsGoodAsNew) {
  EXPECT_EQ(NextRestartWait("5 1000.000", 1599.9).seconds, 16);
  EXPECT_EQ(NextRestartWait("5 1000.000", 1600).seconds, 0.5);
  EXPECT_EQ(NextRestartWait("5 1000.000", 1600).text, "1 1600.500");
}

TEST(RestartWaitTest, WhatIsNoTextOfOursCountsAsTheFirstTime) {
  for (const char* text : {"", "x", "3", "-3 1000", "0 1000", "99999999999999999999 1000"}) {
    EXPECT_EQ(NextRestartWait(text, 1001).seconds, 0.5) << text;
  }
  EXPECT_EQ(NextRestartWait("2000000000 1000", 1001).seconds, 60) << "no overflow";
}

}  // namespace
}  // namespace heddle::elastic
