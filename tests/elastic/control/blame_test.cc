// Who is given up when workers accuse each other.
#include "elastic/control/membership/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Duration kProbe = std::chrono::milliseconds(500);

class BlameTest : public testing::Test {
 protected:
  BlameTest() {
    DurableGeneration held{.number = 1, .plan = {}, .members = {}};
    ConnectionId connection = 1;
    for (const std::string& name : ranks_) {
      wire::Hello hello;
      hello.set_name(name);
      roster_.Join(connection++, hello, now_);
      held.plan.members.push_back(name);
      held.members[name] = name;
    }
    generations_.Begin(held);
  }
  std::vector<std::string> Accuse(const std::string& accuser, const std::string& accused) {
    return Names(blame_.Accuse(accuser, accused, "reset", roster_, generations_, now_));
  }
  // Everybody but `silent` is heard in the second half of the window, which then ends.
  Blame::Verdict JudgeWithSilent(const std::string& silent = "") {
    now_ += kProbe;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] != silent) {
        roster_.NoteHeard(static_cast<ConnectionId>(i) + 1, now_);
      }
    }
    return blame_.Judge(roster_, ranks_, kProbe, now_);
  }
  static std::vector<std::string> Names(const std::vector<Loss>& losses) {
    std::vector<std::string> names;
    for (const Loss& loss : losses) {
      names.push_back(loss.worker);
    }
    return names;
  }

  const std::vector<std::string> ranks_ = {"c", "a", "b"};  // Not the order of names.
  Time now_{std::chrono::seconds(100)};
  Roster roster_;
  Generations generations_{1};
  Blame blame_;
};

TEST_F(BlameTest, NobodyIsJudgedBeforeTheWindowIsOver) {
  EXPECT_THAT(Accuse("a", "b"), IsEmpty());
  EXPECT_EQ(blame_.NextDeadline(kProbe), now_ + kProbe);
  now_ += kProbe - Duration(1);
  EXPECT_THAT(blame_.Judge(roster_, ranks_, kProbe, now_).losses, IsEmpty());
  EXPECT_FALSE(blame_.empty());
}

TEST_F(BlameTest, TheAccusedThatFellSilentGoes) {
  Accuse("a", "b");
  Accuse("c", "b");
  Accuse("b", "a");
  const Blame::Verdict verdict = JudgeWithSilent("b");
  EXPECT_THAT(Names(verdict.losses), testing::Each("b"));
  EXPECT_THAT(verdict.losses.front().reason, HasSubstr("fell silent"));
  EXPECT_TRUE(blame_.empty());
}

// A heartbeat that was on its way when the peer saw the loss proves nothing.
TEST_F(BlameTest, AWordOfTheFirstHalfOfTheWindowIsNoAnswer) {
  Accuse("a", "b");
  roster_.NoteHeard(3, now_ + kProbe / 2);
  now_ += kProbe;
  EXPECT_THAT(blame_.Judge(roster_, ranks_, kProbe, now_).losses.front().reason,
              HasSubstr("fell silent"));
}

TEST_F(BlameTest, OfLiveOnesTheMostAccusedGoes) {
  Accuse("a", "b");
  Accuse("b", "c");
  Accuse("a", "c");
  const Blame::Verdict verdict = JudgeWithSilent();
  EXPECT_THAT(Names(verdict.losses), ElementsAre("c"));
  EXPECT_THAT(verdict.losses.front().reason, "its link to b is broken: reset");
}

TEST_F(BlameTest, ATieGoesToTheHigherRankWhoeverReportedFirst) {
  for (const bool turned : {false, true}) {
    Accuse(turned ? "a" : "c", turned ? "c" : "a");
    Accuse(turned ? "c" : "a", turned ? "a" : "c");
    EXPECT_THAT(Names(JudgeWithSilent().losses), ElementsAre("a")) << "rank 1 of c, a, b";
  }
}

TEST_F(BlameTest, ARepeatedAccusationCountsOnce) {
  Accuse("a", "c");
  Accuse("a", "c");
  Accuse("a", "c");
  Accuse("c", "b");
  Accuse("a", "b");
  EXPECT_THAT(Names(JudgeWithSilent().losses), ElementsAre("b"));
}

TEST_F(BlameTest, WhoHasBrokenAwayIsLostAtOnce) {
  roster_.Disconnect(3, now_);
  EXPECT_THAT(Accuse("a", "b"), ElementsAre("b"));
  EXPECT_THAT(Accuse("a", ""), ElementsAre("b")) << "nobody is named, so any member fits";
  generations_.RemoveMember("b");
  EXPECT_THAT(Accuse("c", ""), IsEmpty());
}

TEST_F(BlameTest, AnAccusationThatNamesNobodyFitsMembers) {
  EXPECT_FALSE(blame_.Fits("b", true));
  Accuse("a", "");
  EXPECT_TRUE(blame_.Fits("b", true));
  EXPECT_FALSE(blame_.Fits("b", false));
  const Blame::Verdict verdict = JudgeWithSilent();
  EXPECT_THAT(verdict.losses, IsEmpty());
  EXPECT_TRUE(verdict.unknown);
}

TEST_F(BlameTest, WhoIsLostAlreadyIsNotAccused) {
  Accuse("a", "gone");
  EXPECT_TRUE(blame_.empty());
}

TEST_F(BlameTest, WhoWasNeverHeardHasNotBrokenAway) {
  DurableState durable;
  for (const std::string& name : ranks_) {
    durable.workers[name];
  }
  Roster restored;
  restored.Restore(durable, now_);
  EXPECT_THAT(blame_.Accuse("a", "b", "reset", restored, generations_, now_), IsEmpty());
  EXPECT_THAT(blame_.Accuse("a", "", "reset", restored, generations_, now_), IsEmpty());
  now_ += kProbe;
  const Blame::Verdict verdict = blame_.Judge(restored, ranks_, kProbe, now_);
  EXPECT_THAT(Names(verdict.losses), ElementsAre("b")) << "it does not answer";
}

TEST_F(BlameTest, OnlyTheAccusedIsLostByItsBrokenConnection) {
  roster_.Disconnect(1, now_);  // c
  EXPECT_THAT(Accuse("a", "b"), IsEmpty());
  EXPECT_THAT(Accuse("b", "c"), ElementsAre("c"));
}

TEST_F(BlameTest, TheFirstWindowThatEndsJudgesAllThatWasSaid) {
  Accuse("a", "b");
  const Time first = now_;
  now_ += kProbe / 4;
  Accuse("c", "a");
  EXPECT_EQ(blame_.NextDeadline(kProbe), first + kProbe);
  now_ = first + kProbe;
  for (const ConnectionId connection : {1U, 2U, 3U}) {
    roster_.NoteHeard(connection, now_);
  }
  const Blame::Verdict verdict = blame_.Judge(roster_, ranks_, kProbe, now_);
  EXPECT_THAT(Names(verdict.losses), ElementsAre("b")) << "one accuser each, and the higher rank";
  EXPECT_FALSE(verdict.unknown);
  EXPECT_TRUE(blame_.empty());
  EXPECT_EQ(blame_.NextDeadline(kProbe), std::nullopt);
}

TEST_F(BlameTest, OneThatIsNamedCountsMoreThanOnesThatAreNot) {
  Accuse("a", "");
  Accuse("b", "");
  Accuse("c", "a");
  const Blame::Verdict verdict = JudgeWithSilent();
  EXPECT_THAT(Names(verdict.losses), ElementsAre("a"));
  EXPECT_THAT(verdict.losses.front().reason, "its link to c is broken: reset");
  EXPECT_FALSE(verdict.unknown);
}

TEST_F(BlameTest, WhoAccusesTwiceOtherwiseIsHeardTwice) {
  Accuse("a", "b");
  Accuse("a", "c");
  Accuse("b", "c");
  EXPECT_FALSE(blame_.Fits("a", true));
  EXPECT_TRUE(blame_.Fits("c", false));
  EXPECT_THAT(Names(JudgeWithSilent().losses), ElementsAre("c"));
}

}  // namespace
}  // namespace heddle::elastic
