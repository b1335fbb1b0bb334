// How long a worker that is given up again and again waits.
#include "elastic/worker/begun.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(BegunTest, EachTimeInARowWaitsTwiceAsLongUpToAMinute) {
  std::string text;
  double now = 1000;
  for (const double wait : {0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0}) {
    const Begun begun = NextBegin(text, now);
    EXPECT_EQ(begun.wait_seconds, wait);
    text = begun.text;
    now += wait + 1;
  }
}

TEST(BegunTest, WhoeverKeptItsPlaceForTenMinutesIsAsGoodAsNew) {
  EXPECT_EQ(NextBegin("5 1000.000", 1599.9).wait_seconds, 16);
  EXPECT_EQ(NextBegin("5 1000.000", 1600).wait_seconds, 0.5);
  EXPECT_EQ(NextBegin("5 1000.000", 1600).text, "1 1600.500");
}

TEST(BegunTest, WhatIsNoTextOfOursCountsAsTheFirstTime) {
  for (const char* text : {"", "x", "3", "-3 1000", "0 1000", "99999999999999999999 1000"}) {
    EXPECT_EQ(NextBegin(text, 1001).wait_seconds, 0.5) << text;
  }
  EXPECT_EQ(NextBegin("2000000000 1000", 1001).wait_seconds, 60) << "no overflow";
}

}  // namespace
}  // namespace heddle::elastic
