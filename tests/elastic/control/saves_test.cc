// A save ends once: by a commit of all its parts, or given up.
#include "elastic/control/saves/saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SavesTest : public testing::Test {
 protected:
  SavesTest() {
    DurableGeneration held{.number = 3, .plan = {}, .members = {}};
    held.plan.members = {"a", "b", "c"};
    held.plan.parameters = {{0}, {1}, {}};  // c holds nothing, so it writes nothing.
    held.members = {{"a", "A"}, {"b", "B"}, {"c", "C"}};
    generations_.Begin(held);
  }
  void Part(const std::string& worker, int64_t step, const std::string& error = "") {
    wire::CheckpointPart part;
    part.set_step(step);
    part.set_generation(3);
    part.set_part(worker + std::to_string(step));
    part.set_error(error);
    saves_.TakePart(worker, part, generations_, {}, out_);
    EXPECT_TRUE(saves_.Check(false).ok());
  }
  bool Committed(int64_t step, const Status& status = Status::Ok()) {
    CheckpointCommitted event;
    event.step = step;
    event.generation = 3;
    event.status = status;
    return saves_.TakeCommit(event, out_);
  }
  // What was decided since the last look: "commit 10", "abandon 10".
  std::vector<std::string> Decided() {
    std::vector<std::string> decided;
    for (const CoordinatorAction& action : out_.Take()) {
      if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
        decided.push_back("commit " + std::to_string(commit->step));
      } else if (const auto* abandon = std::get_if<AbandonCheckpoint>(&action)) {
        decided.push_back("abandon " + std::to_string(abandon->step));
      }
    }
    return decided;
  }

  Generations generations_{3};
  Saves saves_;
  Outbox out_{[] { return DurableState(); }};
};

TEST_F(SavesTest, IsCommittedOnceWhenAllWritersHaveReported) {
  Part("a", 10);
  Part("a", 10);
  Part("c", 10);
  EXPECT_THAT(Decided(), IsEmpty());
  Part("b", 10);
  EXPECT_THAT(Decided(), ElementsAre("commit 10"));
  Part("b", 10);
  EXPECT_THAT(Decided(), IsEmpty()) << "it is being committed";
  EXPECT_TRUE(Committed(10));
  Part("a", 10);
  Part("b", 10);
  EXPECT_THAT(Decided(), IsEmpty()) << "it is committed";
  EXPECT_FALSE(Committed(10)) << "nobody asked for it a second time";
  EXPECT_THAT(saves_.committed(), ElementsAre(10));
}

TEST_F(SavesTest, PartsAreHandedOverByRank) {
  Part("b", 10);
  Part("a", 10);
  const auto actions = out_.Take();
  EXPECT_THAT(std::get<CommitCheckpoint>(actions.back()).parts, ElementsAre("a10", "b10"));
}

TEST_F(SavesTest, OneThatWasBegunIsGivenUpWithAWriterThatOwesItsPart) {
  Part("a", 10);
  Part("a", 20);
  Part("b", 20);
  EXPECT_THAT(Decided(), ElementsAre("commit 20"));
  saves_.Lose("a", out_);
  EXPECT_THAT(Decided(), IsEmpty()) << "it owes nothing";
  saves_.Lose("b", out_);
  EXPECT_THAT(Decided(), ElementsAre("abandon 10")) << "and 20 is in the hands of the storage";
  saves_.Lose("b", out_);
  EXPECT_THAT(Decided(), IsEmpty()) << "once";
}

TEST_F(SavesTest, AnOlderOneIsGivenUpWhenANewerIsCommitted) {
  Part("a", 10);
  Part("a", 20);
  Part("b", 20);
  Part("a", 30);
  Decided();
  EXPECT_TRUE(Committed(20));
  EXPECT_THAT(Decided(), ElementsAre("abandon 10"));
  EXPECT_FALSE(saves_.Check(true).ok()) << "30 is still waited for";
  Part("b", 30);
  EXPECT_TRUE(saves_.Check(true).ok());
}

TEST_F(SavesTest, AnErrorGivesItUpAndItsOtherPartsChangeNothing) {
  Part("a", 10, "disk full");
  EXPECT_THAT(Decided(), ElementsAre("abandon 10"));
  EXPECT_EQ(saves_.WhyFailed(10, 3), "disk full");
  Part("b", 10);
  EXPECT_THAT(Decided(), IsEmpty());
  saves_.Lose("b", out_);
  EXPECT_THAT(Decided(), IsEmpty()) << "all have reported: nothing is left of it";
}

TEST_F(SavesTest, OneThatFailedIsKnownAndNotBegunAgain) {
  EXPECT_EQ(saves_.WhyFailed(10, 3), "");
  Part("a", 10, "disk full");
  EXPECT_EQ(saves_.WhyFailed(10, 3), "disk full");
  EXPECT_EQ(saves_.WhyFailed(10, 2), "");
  EXPECT_EQ(saves_.WhyFailed(11, 3), "");
  Part("b", 10);
  Decided();
  Part("a", 10);
  Part("b", 10);
  EXPECT_THAT(Decided(), IsEmpty()) << "what was written of it may be gone";
}

TEST_F(SavesTest, AStorageThatFailsIsAnErrorOfThatSaveAlone) {
  for (const int64_t step : {10, 20}) {
    Part("a", step);
    Part("b", step);
  }
  EXPECT_FALSE(Committed(10, UnavailableError("no route")));
  EXPECT_THAT(saves_.WhyFailed(10, 3), testing::HasSubstr("no route"));
  EXPECT_THAT(saves_.committed(), IsEmpty());
  EXPECT_TRUE(Committed(20));
}

TEST_F(SavesTest, NobodyElseBeginsOne) {
  Part("stranger", 10);
  generations_.RemoveMember("b");
  Part("a", 10);  // b can no longer report.
  saves_.Lose("a", out_);
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SavesTest, WhatIsKnownIsDurableBeforeACheckpointExists) {
  Part("a", 10);
  Part("b", 10);
  const auto actions = out_.Take();
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Persist>(actions[0]));
  EXPECT_TRUE(std::holds_alternative<CommitCheckpoint>(actions[1]));
}

TEST_F(SavesTest, ACommitIsDurableBeforeItIsAnnounced) {
  Part("a", 10);
  Part("b", 10);
  out_.Take();
  Committed(10);
  const auto actions = out_.Take();
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Persist>(actions[0]));
  EXPECT_EQ(std::get<WriteLog>(actions[1]).event.kind, "checkpoint");
}

TEST_F(SavesTest, CheckpointsAfterTheStepThatTheJobGoesBackToAreGivenUp) {
  saves_.Restore({10, 20, 30});
  saves_.RollBackTo(20, out_);
  EXPECT_THAT(saves_.committed(), ElementsAre(10, 20));
  EXPECT_FALSE(saves_.IsCommitted(30));
  DurableState durable;
  saves_.Store(durable);
  EXPECT_THAT(durable.checkpoints, ElementsAre(10, 20));
  EXPECT_THAT(durable.given_up_checkpoints, ElementsAre(30));
  Part("a", 30);
  Part("b", 30);
  EXPECT_THAT(Decided(), ElementsAre("commit 30")) << "the one on storage is replaced";
  EXPECT_TRUE(Committed(30));
  EXPECT_THAT(saves_.committed(), ElementsAre(10, 20, 30));
  saves_.Store(durable);
  EXPECT_THAT(durable.given_up_checkpoints, IsEmpty());
}

TEST_F(SavesTest, SavesOfStepsThatTheJobGoesBackBehindAreGivenUp) {
  Part("a", 20);
  Part("b", 20);
  Part("a", 30);
  EXPECT_THAT(Decided(), ElementsAre("commit 20"));
  saves_.RollBackTo(15, out_);
  EXPECT_THAT(Decided(), ElementsAre("abandon 30"));
  EXPECT_FALSE(saves_.IsCommitting(20)) << "nothing is to be noted there";
  EXPECT_FALSE(Committed(20)) << "the storage was at it";
  EXPECT_THAT(saves_.committed(), IsEmpty());
  DurableState durable;
  saves_.Store(durable);
  EXPECT_THAT(durable.given_up_checkpoints, ElementsAre(20));
}

TEST_F(SavesTest, WhatIsGivenUpIsAnnouncedOnce) {
  Part("a", 10, "disk full");
  saves_.Lose("b", out_);
  EXPECT_THAT(Decided(), ElementsAre("abandon 10"));
}

TEST_F(SavesTest, PartsOfOneThatWasPrunedBeginNoneAnew) {
  saves_.Restore({10, 20});
  saves_.Forget({10});
  Part("a", 10);
  saves_.Lose("b", out_);
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SavesTest, WhatIsNoLongerOnStorageIsForgotten) {
  saves_.Restore({10, 20, 30}, {30});
  EXPECT_THAT(saves_.committed(), ElementsAre(10, 20));
  saves_.Forget({10, 30});
  EXPECT_THAT(saves_.committed(), ElementsAre(20));
  DurableState durable;
  saves_.Store(durable);
  EXPECT_THAT(durable.given_up_checkpoints, IsEmpty());
}

TEST_F(SavesTest, WhatCannotBeReadIsNotSound) {
  saves_.Restore({10, 20});
  saves_.Refuse(20, "a checksum differs");
  EXPECT_THAT(saves_.committed(), ElementsAre(10));
  EXPECT_EQ(saves_.unsound(), "");
  saves_.Refuse(10, "it is gone");
  EXPECT_EQ(saves_.unsound(), "it is gone");
}

}  // namespace
}  // namespace heddle::elastic
