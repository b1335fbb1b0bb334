// A worker that was told to end, and whether a coordinator lets it go.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/member/member.h"

namespace heddle::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// It trains, and its job gives it five seconds.
class NoticeTest : public testing::Test {
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
        code_ = exit->code;
      } else if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
        leaves_at_once_ = send->message.has_leaving() && send->message.leaving().at_once();
      }
    }
  }
  template <typename Fill>
  void Command(Fill fill) {
    FromCoordinator event;
    fill(event.message);
    Tell(event);
  }
  void Train() {
    Tell(StreamUp());
    Command([](wire::ToWorker& message) {
      wire::Welcome& welcome = *message.mutable_welcome();
      welcome.set_name("a");
      welcome.set_job_id("job");
      welcome.set_heartbeat_seconds(0.2);
      welcome.set_coordinator_wait_seconds(600);
      welcome.set_notice_seconds(5);
    });
    Tell(JobApplied{Status::Ok()});
    Command([](wire::ToWorker& message) {
      message.mutable_prepare()->set_generation(1);
      message.mutable_prepare()->add_members()->set_name("a");
    });
    Tell(PlanLowered{1, Status::Ok(), 1});
    Command([](wire::ToWorker& message) { message.mutable_start()->set_generation(1); });
    StateMoved moved;
    moved.generation = 1;
    Tell(moved);
    Command([](wire::ToWorker& message) { message.mutable_go()->set_generation(1); });
    ASSERT_EQ(member_.standing(), wire::STANDING_TRAINING);
  }
  void Wait(Duration time) {
    now_ += time;
    Tell(MemberTicked());
  }

  Time now_{seconds(50)};
  Member member_{Identity(), MemberOptions(), now_};
  std::optional<int> code_;
  bool leaves_at_once_ = false;
};

TEST_F(NoticeTest, WithoutACoordinatorItEndsWhenItsNoticeIsOver) {
  Train();
  Tell(StreamDown{});
  Tell(TerminateRequested{"SIGTERM"});
  EXPECT_EQ(code_, std::nullopt) << "one may come back";
  EXPECT_EQ(member_.NextDeadline(), now_ + seconds(5));
  Wait(milliseconds(4900));
  EXPECT_EQ(code_, std::nullopt);
  Wait(milliseconds(100));
  EXPECT_EQ(code_, 75);
}

TEST_F(NoticeTest, ACoordinatorThatIsHeardIsWaitedForAndOneThatIsSilentIsNot) {
  Train();
  Tell(TerminateRequested{"SIGTERM"});
  now_ += seconds(6);
  Command([](wire::ToWorker& message) { message.mutable_alive(); });
  Wait(milliseconds(200));
  EXPECT_EQ(code_, std::nullopt);
  EXPECT_GT(member_.NextDeadline(), now_) << "it is not woken for what has passed";
  Wait(seconds(3));
  EXPECT_EQ(code_, 75);
  EXPECT_TRUE(leaves_at_once_);
}

TEST_F(NoticeTest, WhoStaysIsNotEndedByANoticeThatWasWithdrawn) {
  Train();
  Tell(TerminateRequested{"SIGTERM"});
  Command([](wire::ToWorker& message) { message.mutable_stay()->set_notice(1); });
  Wait(seconds(60));
  EXPECT_EQ(code_, std::nullopt);
}

TEST_F(NoticeTest, WhoTrainsWithoutANoticeNeedsNoCoordinator) {
  Train();
  Tell(StreamDown{});
  Wait(seconds(6000));
  EXPECT_EQ(code_, std::nullopt);
  EXPECT_EQ(member_.NextDeadline(), std::nullopt);
}

TEST_F(NoticeTest, AskedToEndBeforeACoordinatorTookItItHasNotDoneItsWork) {
  Tell(TerminateRequested{"SIGTERM"});
  EXPECT_EQ(code_, 75);
}

}  // namespace
}  // namespace heddle::elastic
