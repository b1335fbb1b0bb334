#include "elastic/control/log_event.h"

#include <limits>

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(LogEventTest, IsOneJsonObjectWithTimeAndEventFirst) {
  LogEvent event;
  event.kind = "step";
  event.fields = {
      {"step", int64_t{7}}, {"loss", 2.0 / 3.0}, {"plan", RawJson{"{\r\n \"a\": 1\n}"}}};
  EXPECT_EQ(
      FormatLogEvent(event, 1700000000.25),
      "{\"time\": 1700000000.250000, \"event\": \"step\", \"step\": 7, \"loss\": 0.666666667, "
      "\"plan\": {   \"a\": 1 }}");
}

TEST(LogEventTest, LossesHaveNineSignificantDigits) {
  LogEvent event;
  event.kind = "step";
  event.fields = {{"loss", 123.4567890123}};
  EXPECT_EQ(FormatLogEvent(event, 0),
            "{\"time\": 0.000000, \"event\": \"step\", \"loss\": 123.456789}");
  event.fields = {{"loss", 1.23456789012e-7}};
  EXPECT_EQ(FormatLogEvent(event, 0),
            "{\"time\": 0.000000, \"event\": \"step\", \"loss\": 1.23456789e-07}");
}

TEST(LogEventTest, WhatJsonCannotSayIsNull) {
  LogEvent event;
  event.kind = "step";
  event.fields = {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"plan", RawJson{""}}};
  EXPECT_EQ(FormatLogEvent(event, 0),
            "{\"time\": 0.000000, \"event\": \"step\", \"loss\": null, \"plan\": null}");
}

TEST(LogEventTest, FindsItsFields) {
  LogEvent event;
  event.fields = {{"step", int64_t{7}}};
  ASSERT_NE(event.Find("step"), nullptr);
  EXPECT_EQ(std::get<int64_t>(*event.Find("step")), 7);
  EXPECT_EQ(event.Find("loss"), nullptr);
}

}  // namespace
}  // namespace heddle::elastic
