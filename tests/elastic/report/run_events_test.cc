// A run's log read while it grows: whole lines, once each, whatever the pieces that they come in.
#include "elastic/report/run_events.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "elastic/report/event_fields.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EventReaderTest : public testing::Test {
 protected:
  std::vector<std::string> Next() {
    auto lines = reader_.Next();
    EXPECT_TRUE(lines.ok()) << lines.status().ToString();
    return lines.ok() ? *lines : std::vector<std::string>();
  }

  std::string log_;
  size_t piece_ = 1000;
  EventReader reader_{[this](int64_t offset) -> Result<std::string> {
    const size_t begin = std::min(static_cast<size_t>(offset), log_.size());
    return log_.substr(begin, piece_);
  }};
};

TEST_F(EventReaderTest, LinesComeOnceAndWhole) {
  EXPECT_THAT(Next(), IsEmpty());
  log_ = "one\ntwo\nthr";
  EXPECT_THAT(Next(), ElementsAre("one", "two"));
  EXPECT_THAT(Next(), IsEmpty()) << "the third one is not whole";
  log_ += "ee\n\nfive\n";
  EXPECT_THAT(Next(), ElementsAre("three", "", "five"));
  EXPECT_THAT(Next(), IsEmpty());
}

TEST_F(EventReaderTest, PiecesMayBeSmallerThanALine) {
  piece_ = 3;
  log_ = "a long line\nb\nc\n";
  std::vector<std::string> all;
  for (int i = 0; i < 5; ++i) {
    std::ranges::copy(Next(), std::back_inserter(all));
  }
  EXPECT_THAT(all, ElementsAre("a long line", "b", "c"));
}

TEST_F(EventReaderTest, TheHalfOfALineThatIsRemovedIsForgotten) {
  log_ = "one\nhalf of a li";
  EXPECT_THAT(Next(), ElementsAre("one"));
  log_ = "one\ntwo\n";
  EXPECT_THAT(Next(), ElementsAre("two"));
}

TEST_F(EventReaderTest, AnEndlessLineIsRefused) {
  EventReader endless([](int64_t) -> Result<std::string> { return std::string(8 << 20, 'x'); });
  EXPECT_EQ(endless.Next().status().code(), StatusCode::kInvalidArgument);
}

TEST(RunEventsTest, FieldsKeepTheirKind) {
  const auto event = ParseEvent(
      R"({"time": 12.5, "event": "plan", "generation": 3, "seconds": 0.5, "no": null, "plan": {"a": [1, 2]}})");
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  EXPECT_EQ(event->time, 12.5);
  EXPECT_EQ(event->event.kind, "plan");
  EXPECT_EQ(NumberOf(event->event, "generation"), 3);
  EXPECT_EQ(std::get<int64_t>(*event->event.Find("generation")), 3);
  EXPECT_EQ(std::get<double>(*event->event.Find("seconds")), 0.5);
  EXPECT_EQ(event->event.Find("no"), nullptr) << "null is nothing";
  EXPECT_EQ(std::get<RawJson>(*event->event.Find("plan")).text, R"({"a":[1,2]})");
  EXPECT_FALSE(EndsJob(*event));
  EXPECT_TRUE(EndsJob(*ParseEvent(R"({"time": 1, "event": "job_failed"})")));
  EXPECT_TRUE(EndsJob(*ParseEvent(R"({"time": 1, "event": "job_finished"})")));
}

TEST(RunEventsTest, WhatIsNoEventIsRefused) {
  const std::string deep(100000, '[');
  for (const std::string& line :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"),
        std::string(R"({"event": "step"})"), std::string(R"({"time": "1", "event": "step"})"),
        std::string(R"({"time": 1, "event": 2})"),
        R"({"time": 1, "event": "step", "deep": )" + deep}) {
    EXPECT_EQ(ParseEvent(line).status().code(), StatusCode::kInvalidArgument) << line.substr(0, 60);
  }
  const auto event = ParseEvent(R"({"time": 1, "event": "step", "deep": )" + deep +
                                std::string(deep.size(), ']') + "}");
  EXPECT_TRUE(!event.ok() || event->event.Find("deep") != nullptr) << "and does no harm";
}

TEST(RunEventsTest, SinceIsADurationOrATime) {
  EXPECT_EQ(*ParseSince("10m", 1000), 400);
  EXPECT_EQ(*ParseSince("500ms", 1000), 999.5);
  EXPECT_EQ(*ParseSince("1700000000.25", 1000), 1700000000.25);
  for (const char* wrong : {"", "yesterday", "-5", "5 ", "nan", "inf", "-2s"}) {
    const auto since = ParseSince(wrong, 1000);
    ASSERT_FALSE(since.ok()) << wrong;
    EXPECT_THAT(since.status().message(), HasSubstr("--since"));
  }
}

TEST(RunEventsTest, AFolderIsReadFromAByteOn) {
  const std::string folder = testing::TempDir() + "heddle-events-" + std::to_string(::getpid());
  EXPECT_EQ(*ReadEventBytes(folder, 0), "") << "there is no log yet";
  ASSERT_EQ(std::system(("mkdir -p " + folder).c_str()), 0);
  std::ofstream(folder + "/events.jsonl") << "0123456789";
  EXPECT_EQ(*ReadEventBytes(folder, 0), "0123456789");
  EXPECT_EQ(*ReadEventBytes(folder, 7), "789");
  EXPECT_EQ(*ReadEventBytes(folder, 10), "");
  EXPECT_EQ(*ReadEventBytes(folder, 1000), "");
  EXPECT_EQ(ReadEventBytes(folder, -1).status().code(), StatusCode::kInvalidArgument);
  std::ofstream(folder + "/events.jsonl") << std::string(3 * kMaxEventBytes, 'x');
  EXPECT_EQ(ReadEventBytes(folder, 0)->size(), kMaxEventBytes);
  std::remove((folder + "/events.jsonl").c_str());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace heddle::elastic
