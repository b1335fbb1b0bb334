// A worker that has nothing to do, and a coordinator that knows nothing of the one before.
#include <gtest/gtest.h>

#include "elastic/member/member.h"

namespace heddle::elastic {
namespace {

class SubmittedAgainTest : public testing::Test {
 protected:
  SubmittedAgainTest() : member_(Identity(), MemberOptions(), Time()) {
    member_.Handle(StreamUp(), Time());
  }

  static MemberIdentity Identity() {
    MemberIdentity identity;
    identity.name = "a";
    identity.incarnation = std::string(16, 'a');
    return identity;
  }
  // What becomes of the worker that is welcomed; none: it goes on.
  std::optional<ExitWorker> Welcome(const std::string& secret) {
    FromCoordinator event;
    wire::Welcome& welcome = *event.message.mutable_welcome();
    welcome.set_name("a");
    welcome.set_job_id("job");
    welcome.set_secret(secret);
    for (const MemberAction& action : member_.Handle(event, Time())) {
      if (const auto* exit = std::get_if<ExitWorker>(&action)) {
        return *exit;
      }
    }
    return std::nullopt;
  }

  Member member_;
};

TEST_F(SubmittedAgainTest, WhoHasHeardOfTheJobAsItWasBeforeBeginsAnew) {
  EXPECT_FALSE(Welcome("one"));
  EXPECT_FALSE(Welcome("one"));
  const auto exit = Welcome("two");
  ASSERT_TRUE(exit);
  EXPECT_TRUE(exit->begins_anew);
  EXPECT_EQ(exit->reason, "the job was submitted again");
}

TEST_F(SubmittedAgainTest, WhoLeavesHasNothingMoreToHandOver) {
  EXPECT_FALSE(Welcome("one"));
  member_.Handle(TerminateRequested{"SIGTERM"}, Time());
  const auto exit = Welcome("two");
  ASSERT_TRUE(exit);
  EXPECT_FALSE(exit->begins_anew);
  EXPECT_EQ(exit->code, 0);
}

}  // namespace
}  // namespace heddle::elastic
