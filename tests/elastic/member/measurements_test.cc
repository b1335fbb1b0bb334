// What is asked twice is measured once, and only the newest links count.
#include "elastic/member/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class MeasurementsTest : public testing::Test {
 protected:
  void AskForLinks(int64_t request) {
    wire::MeasureLinks message;
    message.set_request(request);
    measurements_.AskForLinks(message, taken_.out());
  }
  void TakeLinks(int64_t request) {
    wire::LinksMeasured answer;
    answer.set_request(request);
    measurements_.TakeLinks(answer, taken_.out());
  }

  Taken taken_;
  Measurements measurements_;
};

TEST_F(MeasurementsTest, NothingIsMeasuredBeforeTheJobIsApplied) {
  measurements_.AskForProfile(taken_.out());
  AskForLinks(8);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  measurements_.Begin(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("act")) << "the profile alone: links are asked for again";
  EXPECT_TRUE(taken_.Find<MeasureProfile>());
}

TEST_F(MeasurementsTest, AProfileIsMeasuredOnceAndSaidAsOftenAsItIsAskedFor) {
  measurements_.Begin(taken_.out());
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "nobody has asked";
  measurements_.AskForProfile(taken_.out());
  measurements_.AskForProfile(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  measurements_.TakeProfile({Status::Ok(), "{}", 77}, taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("profiled"));
  EXPECT_EQ(taken_.Message().profiled().profile_json(), "{}");
  EXPECT_EQ(taken_.Message().profiled().data(), 77U);
  measurements_.AskForProfile(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("profiled"));
}

TEST_F(MeasurementsTest, WhoCannotBeProfiledLeaves) {
  measurements_.Begin(taken_.out());
  measurements_.TakeProfile({UnavailableError("no link"), ""}, taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("leaving", "act"));
  EXPECT_EQ(taken_.Find<ExitWorker>()->code, 1);
}

TEST_F(MeasurementsTest, OnlyTheNewestLinksCount) {
  measurements_.Begin(taken_.out());
  AskForLinks(8);
  AskForLinks(8);
  EXPECT_THAT(taken_.Words(), ElementsAre("act")) << "one is under way";
  AskForLinks(16);
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<ProbeLinks>()->request.request(), 16);
  TakeLinks(8);
  AskForLinks(8);
  EXPECT_THAT(taken_.Words(), IsEmpty());
  TakeLinks(16);
  EXPECT_THAT(taken_.Words(), ElementsAre("links_measured"));
  AskForLinks(16);
  EXPECT_THAT(taken_.Words(), ElementsAre("links_measured"));
}

TEST_F(MeasurementsTest, WhatIsKnownIsSaidAgain) {
  measurements_.Resend(taken_.out());
  EXPECT_THAT(taken_.Words(), IsEmpty());
  measurements_.Begin(taken_.out());
  AskForLinks(8);
  TakeLinks(8);
  measurements_.TakeProfile({Status::Ok(), "{}"}, taken_.out());
  taken_.Words();
  measurements_.Resend(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("profiled", "links_measured"));
  AskForLinks(16);
  taken_.Words();
  measurements_.Resend(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("profiled")) << "the links asked for are not known yet";
}

}  // namespace
}  // namespace heddle::elastic
