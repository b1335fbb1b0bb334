// A worker whose coordinator's name leads to another one for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/member/member.h"

namespace heddle::elastic {
namespace {

using std::chrono::seconds;

class ElsewhereMemberTest : public testing::Test {
 protected:
  static MemberIdentity Identity() {
    MemberIdentity identity;
    identity.name = "a";
    identity.incarnation = std::string(16, 'a');
    return identity;
  }
  void Tell(const MemberEvent& event) {
    for (const MemberAction& action : member_.Handle(event, now_)) {
      if (const auto* exit = std::get_if<ExitWorker>(&action)) {
        exit_ = *exit;
      } else if (const auto* send = std::get_if<SendToCoordinator>(&action);
                 send != nullptr && send->message.has_hello()) {
        job_id_ = send->message.hello().job_id();
      }
    }
  }
  void Welcome() {
    Tell(StreamUp());
    FromCoordinator event;
    event.message.mutable_welcome()->set_name("a");
    event.message.mutable_welcome()->set_job_id("job");
    event.message.mutable_welcome()->set_heartbeat_seconds(0.2);
    event.message.mutable_welcome()->set_coordinator_wait_seconds(10);
    Tell(event);
  }
  // By another one.
  void Refused() {
    Tell(StreamUp());
    FromCoordinator event;
    event.message.mutable_refused()->set_reason("this is job other");
    event.message.mutable_refused()->set_rejoins(true);
    Tell(event);
    Tell(StreamDown{"closed"});
  }

  Time now_{seconds(50)};
  Member member_{Identity(), MemberOptions(), now_};
  std::optional<ExitWorker> exit_;
  std::string job_id_ = "unsaid";
};

TEST_F(ElsewhereMemberTest, WhoLeavesAnywayEndsWhereItWouldHaveToBeginAnew) {
  Welcome();
  Tell(TerminateRequested{"SIGTERM"});
  FromCoordinator event;
  event.message.mutable_refused()->set_permanent(true);
  event.message.mutable_refused()->set_rejoins(true);
  Tell(event);
  ASSERT_TRUE(exit_);
  EXPECT_EQ(exit_->code, 0);
  EXPECT_FALSE(exit_->begins_anew);
}

TEST_F(ElsewhereMemberTest, ItSaysOfWhichJobItIs) {
  Tell(StreamUp());
  EXPECT_EQ(job_id_, "");
  Welcome();
  Tell(StreamDown{"broken"});
  Tell(StreamUp());
  EXPECT_EQ(job_id_, "job");
}

TEST_F(ElsewhereMemberTest, ItWaitsForItsOwnAndThenBeginsAnew) {
  Welcome();
  Tell(StreamDown{"broken"});
  for (int second = 0; second < 9; ++second) {
    now_ += seconds(1);
    Refused();
    Tell(MemberTicked());
    ASSERT_FALSE(exit_.has_value()) << second;
  }
  now_ += seconds(1);
  Tell(MemberTicked());
  ASSERT_TRUE(exit_.has_value());
  EXPECT_TRUE(exit_->begins_anew);
}

TEST_F(ElsewhereMemberTest, WhenItsOwnAnswersAllIsWell) {
  Welcome();
  Tell(StreamDown{"broken"});
  now_ += seconds(9);
  Refused();
  Welcome();
  Tell(StreamDown{"broken"});
  now_ += seconds(9);
  Tell(MemberTicked());
  EXPECT_FALSE(exit_.has_value());
  now_ += seconds(1);
  Tell(MemberTicked());
  ASSERT_TRUE(exit_.has_value());
  EXPECT_FALSE(exit_->begins_anew) << "nobody has refused it since";
}

}  // namespace
}  // namespace heddle::elastic
