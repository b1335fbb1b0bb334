// Messages are wrapped each by its kind, and dropped while nobody hears them.
#include "elastic/member/member_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MemberOutboxTest, EachMessageIsWrappedByItsKind) {
  Taken taken;
  wire::Ready ready;
  ready.set_seconds(2.5);
  taken.out().Send(ready);
  taken.out().Send(wire::Stopped());
  taken.out().Send(wire::CheckpointPart());
  EXPECT_THAT(taken.Words(), ElementsAre("ready", "stopped", "checkpoint_part"));
  EXPECT_EQ(taken.Message().ready().seconds(), 2.5);
}

TEST(MemberOutboxTest, AMessageIsDroppedUntilTheStreamIsOpenAndAnActionIsNot) {
  MemberOutbox out(false);
  out.Send(wire::Finished());
  EXPECT_THAT(out.Take(), IsEmpty());
  out.Add(MeasureProfile());
  EXPECT_EQ(out.Take().size(), 1U);
  out.Open();
  out.Send(wire::Finished());
  out.Send(std::optional<wire::Finished>());
  out.Send(std::optional<wire::Finished>(wire::Finished()));
  EXPECT_EQ(out.Take().size(), 2U);
}

TEST(MemberOutboxTest, WhoLeavesAtOnceSaysWhyFirst) {
  Taken taken;
  EXPECT_FALSE(taken.out().exits());
  taken.out().LeaveAtOnce("no memory", 2);
  EXPECT_TRUE(taken.out().exits());
  EXPECT_THAT(taken.Words(), ElementsAre("leaving", "act"));
  EXPECT_EQ(taken.Message().leaving().reason(), "no memory");
  EXPECT_TRUE(taken.Message().leaving().at_once());
  EXPECT_EQ(taken.Find<ExitWorker>()->code, 2);
  EXPECT_EQ(taken.Find<ExitWorker>()->reason, "no memory");
}

TEST(MemberOutboxDeathTest, AMessageOfTheCoordinatorIsNoMessageOfAWorker) {
  EXPECT_DEATH(MemberOutbox(true).Send(wire::Welcome()), "no message of a worker");
}

}  // namespace
}  // namespace heddle::elastic
