// Who is at fault when members wait for each other: where the chains of waits end.
#include "elastic/control/membership/wait_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/membership/blame.h"
#include "elastic/protocol/awaited.h"
#include "elastic/protocol/version.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Duration kLimit = std::chrono::seconds(4);
constexpr Duration kPatience = std::chrono::seconds(30);
constexpr Time kNow{std::chrono::seconds(100)};
constexpr Time kLongAgo = kNow - std::chrono::milliseconds(4200);
constexpr Time kLately = kNow - std::chrono::seconds(1);

WaitNode Waits(const std::string& name, std::vector<std::string> others, Time since = kLongAgo) {
  return {.name = name, .waits = true, .waits_for = std::move(others), .quiet_since = since};
}
WaitNode Acts(const std::string& name, Time since = kLongAgo) {
  return {.name = name, .quiet_since = since};
}

WaitGraph::Verdict Judge(std::vector<WaitNode> nodes) {
  return WaitGraph(std::move(nodes)).Judge(kLimit, kPatience, kNow);
}

std::vector<std::string> CulpritsOf(const WaitGraph::Verdict& verdict) {
  std::vector<std::string> names;
  for (const WaitGraph::Culprit& culprit : verdict.culprits) {
    names.push_back(culprit.worker);
  }
  return names;
}

TEST(WaitGraphTest, TheCulpritIsWhereAChainOfWaitsEnds) {
  const auto verdict = Judge({Waits("a", {"b"}), Waits("b", {"c"}), Acts("c"), Waits("d", {"b"})});
  ASSERT_THAT(CulpritsOf(verdict), ElementsAre("c"));
  EXPECT_EQ(verdict.culprits[0].reason, "a waits for b waits for c, which did nothing for 4.2 s");
  EXPECT_THAT(verdict.culprits[0].waiters, ElementsAre("b"));
  EXPECT_THAT(verdict.circle, IsEmpty());
}

TEST(WaitGraphTest, WhoDoesSomethingIsNoCulprit) {
  const auto verdict = Judge({Waits("a", {"b"}), Waits("b", {"c"}), Acts("c", kLately)});
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.circle, IsEmpty()) << "they will go on";
}

TEST(WaitGraphTest, WhereAllHangNobodyIsTheCulprit) {
  const auto verdict = Judge({Acts("b"), Acts("a")});
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.circle, IsEmpty());
  EXPECT_EQ(verdict.reason, "nobody waits, and none of 2 did anything for 4.2 s");
  EXPECT_EQ(Judge({Acts("a")}).reason, "nobody waits, and none of one did anything for 4.2 s")
      << "it trains alone";
  EXPECT_EQ(Judge({Acts("a"), Acts("b", kLately)}).reason, "");
  EXPECT_EQ(Judge({}).reason, "");
}

// Storage may take its time. The last one, whose peers have finished, may have lost their last
// word.
TEST(WaitGraphTest, WhoWaitsForWhatIsNoMemberHasLongerButNotForEver) {
  const WaitGraph graph({Acts("a"), Waits("b", {}), Waits("c", {"b"})});
  EXPECT_EQ(graph.Judge(kLimit, kPatience, kLongAgo + kPatience - Duration(1)).reason, "");
  const auto verdict = graph.Judge(kLimit, kPatience, kLongAgo + kPatience);
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.circle, IsEmpty());
  EXPECT_THAT(verdict.reason,
              HasSubstr("whom they wait for is no member, and none of 3 did anything for"));
}

TEST(WaitGraphTest, WhoIsNotWaitedForIsNoCulprit) {
  EXPECT_THAT(CulpritsOf(Judge({Waits("a", {"c"}), Acts("b"), Acts("c")})), ElementsAre("c"));
}

// What its connections wait for says nothing of a worker that could go on.
TEST(WaitGraphTest, OnlyWhoWaitsItselfHasAnExcuse) {
  WaitNode hung = Acts("c");
  hung.waits_for = {"a"};
  EXPECT_THAT(CulpritsOf(Judge({Waits("a", {"c"}), hung})), ElementsAre("c"));
}

TEST(WaitGraphTest, TwoThatHangAreTwoCulprits) {
  EXPECT_THAT(CulpritsOf(Judge({Waits("a", {"b", "d"}), Acts("b"), Waits("c", {"d"}), Acts("d")})),
              ElementsAre("b", "d"));
}

TEST(WaitGraphTest, AWaitForOneThatActsDoesNotExcuseAnother) {
  EXPECT_THAT(CulpritsOf(Judge({Waits("a", {"b", "c"}), Acts("b"), Acts("c", kLately)})),
              ElementsAre("b"));
}

TEST(WaitGraphTest, OfWhomNothingIsHeardNothingIsConcluded) {
  WaitNode silent = Acts("b");
  silent.is_heard = false;
  EXPECT_THAT(Judge({Waits("a", {"b"}), silent}).culprits, IsEmpty());
  EXPECT_THAT(Judge({Waits("a", {"b"}), silent}).circle, IsEmpty());
  WaitNode waiter = Waits("a", {"b"});
  waiter.is_heard = false;
  EXPECT_THAT(Judge({waiter, Acts("b")}).culprits, IsEmpty());
}

TEST(WaitGraphTest, ACircleBlamesNobody) {
  const auto verdict =
      Judge({Waits("a", {"c"}), Waits("b", {"c"}), Waits("c", {"b"}), Waits("d", {"a"})});
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.circle, ElementsAre("c", "b"));
  EXPECT_EQ(verdict.last, "c");
  EXPECT_EQ(verdict.reason, "c waits for b waits for c, and none did anything for 4.2 s");
}

TEST(WaitGraphTest, ACircleThatWasAliveJustNowIsNone) {
  EXPECT_THAT(Judge({Waits("a", {"b"}), Waits("b", {"a"}, kLately)}).circle, IsEmpty());
}

TEST(WaitGraphTest, WhoWaitsBesideForOneThatActsIsInNoCircle) {
  EXPECT_THAT(
      Judge({Waits("a", {"b"}), Waits("b", {"a", "c"}), Acts("c", kLately), Acts("d")}).circle,
      IsEmpty());
}

TEST(WaitGraphTest, WhoDoesNotSayForWhomItWaitsIsNotBlamed) {
  for (const auto& names : {std::vector<std::string>{}, {"a stranger"}, {"b"}}) {
    const auto verdict = Judge({Waits("a", {"b"}), Waits("b", names)});
    EXPECT_THAT(verdict.culprits, IsEmpty());
    EXPECT_THAT(verdict.circle, IsEmpty()) << "it may wait for storage";
  }
}

TEST(WaitGraphTest, ALongChainIsGivenByItsEnds) {
  std::vector<WaitNode> nodes;
  for (int i = 0; i < 100; ++i) {
    nodes.push_back(Waits("w" + std::to_string(i), {"w" + std::to_string(i + 1)}));
  }
  nodes.back() = Acts("w99");
  const auto verdict = Judge(std::move(nodes));
  ASSERT_THAT(CulpritsOf(verdict), ElementsAre("w99"));
  EXPECT_EQ(verdict.culprits[0].reason,
            "w0 waits for w1 waits for w2 waits for w3 waits for 92 others, of whom the last waits "
            "for w96 waits for w97 waits for w98 waits for w99, which did nothing for 4.2 s");
}

// ---- From what workers say ----

class WaitsAmongTest : public testing::Test {
 protected:
  WaitsAmongTest() {
    for (const std::string& name : ranks_) {
      wire::Hello hello;
      hello.set_name(name);
      hello.set_protocol_version(kProtocolVersion);
      (*hello.mutable_arithmetic())["processor"] = "EPYC";
      roster_.Join(next_++, hello, kLongAgo);
    }
  }
  void Says(const std::string& name,
            bool waits,
            const std::vector<std::string>& others,
            Time at = kLongAgo,
            int64_t progress = 1) {
    wire::Heartbeat message;
    message.set_waits(waits);
    message.set_progress(progress);
    message.set_waits_generation(7);
    message.mutable_waits_for()->Assign(others.begin(), others.end());
    roster_.TakeHeartbeat(name, message, std::chrono::seconds(1), at);
  }
  void HearAll() {
    for (ConnectionId connection = 1; connection < next_; ++connection) {
      roster_.NoteHeard(connection, kNow);
    }
  }
  WaitGraph::Verdict Judge(int64_t generation = 7, Time since = Time()) {
    return WaitsAmong(ranks_, {generation}, roster_, since, std::chrono::seconds(1), kNow)
        .Judge(kLimit, kPatience, kNow);
  }

  const std::vector<std::string> ranks_ = {"c", "a", "b"};  // Not the order of names.
  ConnectionId next_ = 1;
  Roster roster_;
};

TEST_F(WaitsAmongTest, TheNewestWordOfEachCounts) {
  Says("a", true, {"b"});
  Says("b", true, {"c"});
  Says("c", false, {});
  HearAll();
  EXPECT_THAT(CulpritsOf(Judge()), ElementsAre("c"));
  Says("c", false, {}, kLately, 2);
  EXPECT_THAT(Judge().culprits, IsEmpty()) << "it has done something";
  EXPECT_THAT(Judge(7, kLately).culprits, IsEmpty());
}

TEST_F(WaitsAmongTest, WhoHasJustEndedToWaitHasTime) {
  Says("a", true, {"c"});
  Says("c", true, {"b"});
  Says("c", false, {}, kLately);
  HearAll();
  EXPECT_THAT(Judge().culprits, IsEmpty());
}

TEST_F(WaitsAmongTest, NothingIsConcludedFromOldWords) {
  Says("a", true, {"c"});
  Says("c", false, {});
  EXPECT_THAT(Judge().culprits, IsEmpty());
  HearAll();
  roster_.Disconnect(1, kNow);
  EXPECT_THAT(Judge().culprits, IsEmpty());
}

TEST_F(WaitsAmongTest, WaitsOfAnotherGenerationNameNobody) {
  Says("a", true, {"c"});
  Says("c", false, {});
  HearAll();
  EXPECT_THAT(CulpritsOf(Judge()), ElementsAre("c"));
  EXPECT_THAT(Judge(8).culprits, IsEmpty());
}

TEST_F(WaitsAmongTest, OnlyAFewAndKnownNamesAreKept) {
  std::vector<std::string> names = {"nobody", "a"};
  names.resize(kMaxAwaited, "nobody");
  names.push_back("c");  // One too many.
  Says("a", true, names);
  EXPECT_THAT(roster_.at("a").waits.names, IsEmpty()) << "nor does it wait for itself";
  names[3] = "b";
  Says("a", true, names);
  EXPECT_THAT(roster_.at("a").waits.names, ElementsAre("b"));
  Says("a", true, {});
  EXPECT_THAT(roster_.at("a").waits.names, IsEmpty());
}

TEST_F(WaitsAmongTest, WhoIsGoneIsLeftOut) {
  Says("a", true, {"c"});
  Says("c", false, {});
  Outbox out([] { return DurableState(); });
  roster_.Dismiss("c", "lost", true, out);
  HearAll();
  EXPECT_THAT(Judge().culprits, IsEmpty());
}

// ---- What becomes of it ----

TEST(BlameWaitsTest, OnlyWhoHangsIsGivenUp) {
  const WaitGraph graph({Waits("a", {"b"}), Waits("b", {"c"}), Acts("c")});
  Blame blame;
  const Blame::Verdict verdict = blame.JudgeWaits(graph, kLimit, kPatience, kNow);
  ASSERT_THAT(verdict.losses, testing::SizeIs(1));
  EXPECT_EQ(verdict.losses[0].worker, "c");
  EXPECT_THAT(verdict.losses[0].reason, HasSubstr("b waits for c, which did nothing"));
  EXPECT_THAT(verdict.losses[0].accusers, ElementsAre("b"));
  EXPECT_FALSE(verdict.unknown);
}

TEST(BlameWaitsTest, ACircleIsTriedAgainWithAllAndThenWithoutItsHighestRank) {
  const WaitGraph graph({Waits("b", {"c"}), Waits("c", {"a"}), Waits("a", {"b"}), Acts("d")});
  Blame blame;
  for (const bool stepped : {false, true}) {
    if (stepped) {
      blame.ForgetCircle();
    }
    const Blame::Verdict first = blame.JudgeWaits(graph, kLimit, kPatience, kNow);
    EXPECT_THAT(first.losses, IsEmpty());
    EXPECT_TRUE(first.unknown);
    EXPECT_THAT(first.reports.at(""), HasSubstr("b waits for c waits for a waits for b"));
  }
  const Blame::Verdict second = blame.JudgeWaits(graph, kLimit, kPatience, kNow);
  ASSERT_THAT(second.losses, testing::SizeIs(1));
  EXPECT_EQ(second.losses[0].worker, "a");
  EXPECT_THAT(second.losses[0].reason, HasSubstr("again b waits for c"));
  EXPECT_FALSE(second.unknown);
}

TEST(BlameWaitsTest, WhereAllDoNothingNobodyIsGivenUpHoweverOften) {
  const WaitGraph graph({Acts("a"), Acts("b")});
  Blame blame;
  for (int times = 0; times < 3; ++times) {
    const Blame::Verdict verdict = blame.JudgeWaits(graph, kLimit, kPatience, kNow);
    EXPECT_THAT(verdict.losses, IsEmpty());
    EXPECT_TRUE(verdict.unknown);
  }
  const WaitGraph circle({Waits("a", {"b"}), Waits("b", {"a"})});
  EXPECT_THAT(blame.JudgeWaits(circle, kLimit, kPatience, kNow).losses, IsEmpty())
      << "the first of its kind";
}

TEST(BlameWaitsTest, NotEachOfManyWordsIsALook) {
  Blame blame;
  EXPECT_TRUE(blame.WaitsAreDue(kLimit, kNow));
  EXPECT_FALSE(blame.WaitsAreDue(kLimit, kNow + kLimit / 16 - Duration(1)));
  EXPECT_TRUE(blame.WaitsAreDue(kLimit, kNow + kLimit / 16));
}

}  // namespace
}  // namespace heddle::elastic
