// A worker that was told to end, and stays after all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/member/member.h"

namespace heddle::elastic {
namespace {

class StayingMemberTest : public testing::Test {
 protected:
  static MemberIdentity Identity() {
    MemberIdentity identity;
    identity.name = "a";
    identity.incarnation = std::string(16, 'a');
    return identity;
  }
  StayingMemberTest() {
    Tell(StreamUp());
    Welcome();
  }
  void Tell(const MemberEvent& event) {
    for (const MemberAction& action : member_.Handle(event, Time(std::chrono::seconds(50)))) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      if (send != nullptr && send->message.has_leaving()) {
        notices_.push_back(send->message.leaving().at_once() ? -1
                                                             : send->message.leaving().notice());
      }
      forgets_ += std::holds_alternative<ForgetSignals>(action) ? 1 : 0;
      exits_ = exits_ || std::holds_alternative<ExitWorker>(action);
    }
  }
  void Welcome() {
    FromCoordinator event;
    event.message.mutable_welcome()->set_name("a");
    event.message.mutable_welcome()->set_job_id("job");
    event.message.mutable_welcome()->set_heartbeat_seconds(0.2);
    Tell(event);
  }
  void Stay(int64_t notice) {
    FromCoordinator event;
    event.message.mutable_stay()->set_notice(notice);
    Tell(event);
  }
  void Terminate() { Tell(TerminateRequested{"SIGTERM"}); }

  Member member_{Identity(), MemberOptions(), Time(std::chrono::seconds(50))};
  std::vector<int64_t> notices_;
  int forgets_ = 0;
  bool exits_ = false;
};

TEST_F(StayingMemberTest, EachNoticeHasItsNumberAndASecondOneInARowEndsIt) {
  Terminate();
  Stay(1);
  EXPECT_EQ(forgets_, 1);
  Terminate();
  EXPECT_FALSE(exits_);
  EXPECT_THAT(notices_, testing::ElementsAre(1, 2));
  Terminate();
  EXPECT_TRUE(exits_);
}

TEST_F(StayingMemberTest, WhatIsWithdrawnIsNotSaidAgain) {
  Terminate();
  Tell(StreamDown{"broken"});
  Tell(StreamUp());
  Welcome();
  EXPECT_THAT(notices_, testing::ElementsAre(1, 1));
  Stay(1);
  Tell(StreamDown{"broken"});
  Tell(StreamUp());
  Welcome();
  EXPECT_THAT(notices_, testing::ElementsAre(1, 1));
}

TEST_F(StayingMemberTest, AnEarlierNoticesEndDoesNotEndALaterOne) {
  Terminate();
  Stay(1);
  Terminate();
  Stay(1);
  EXPECT_EQ(forgets_, 1);
  Terminate();
  EXPECT_TRUE(exits_) << "it was still to leave";
}

TEST_F(StayingMemberTest, NothingIsTakenBackOfWhoStays) {
  Stay(0);
  EXPECT_EQ(forgets_, 0);
}

}  // namespace
}  // namespace heddle::elastic
