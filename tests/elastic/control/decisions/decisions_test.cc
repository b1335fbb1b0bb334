// What the log says of a change of generation: cause, evidence, alternatives, choice, seconds.
#include "elastic/control/decisions/decisions.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class DecisionsTest : public testing::Test {
 protected:
  std::vector<LogEvent> Taken() {
    std::vector<LogEvent> events;
    for (const CoordinatorAction& action : out_.Take()) {
      events.push_back(std::get<WriteLog>(action).event);
    }
    return events;
  }
  LogEvent Decide(Decisions::Outcome outcome) {
    decisions_.LogDecision(outcome, out_);
    const std::vector<LogEvent> events = Taken();
    EXPECT_EQ(events.size(), 1u);
    EXPECT_EQ(events.front().kind, "decision");
    return events.front();
  }
  static std::string Text(const LogEvent& event, const char* field) {
    return std::get<std::string>(*event.Find(field));
  }
  static std::string Json(const LogEvent& event, const char* field) {
    return std::get<RawJson>(*event.Find(field)).text;
  }
  static double Number(const LogEvent& event, const char* field) {
    return std::get<double>(*event.Find(field));
  }
  static SourceOption Option(Source source, int64_t step, double seconds) {
    return {.source = source, .step = step, .seconds = seconds};
  }

  Outbox out_{[] { return DurableState(); }};
  JobPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  Decisions decisions_;
};

TEST_F(DecisionsTest, TheQuickestSourceIsTheChoiceAndTheOthersAreThere) {
  decisions_.Note({.worker = "b",
                   .what = "killed by \"SIGKILL\"",
                   .silent_seconds = 0.25,
                   .accusers = {"a", "c"}});
  decisions_.Begin(Cause::kLoss);
  decisions_.WeighSources({Option(Source::kLive, 12, 0.5), Option(Source::kCheckpoint, 10, 2)},
                          policy_);
  const LogEvent event = Decide({.generation = 5,
                                 .follows = 3,
                                 .pause = std::chrono::milliseconds(750),
                                 .since = now_,
                                 .reached_step = 12});
  EXPECT_EQ(std::get<int64_t>(*event.Find("generation")), 5);
  EXPECT_EQ(std::get<int64_t>(*event.Find("follows")), 3);
  EXPECT_EQ(Text(event, "cause"), "loss");
  EXPECT_EQ(Json(event, "evidence"),
            R"([{"worker": "b", "what": "killed by \"SIGKILL\"", "silent_seconds": 0.25, )"
            R"("accusers": ["a", "c"]}])");
  EXPECT_EQ(Json(event, "alternatives"),
            R"([{"what": "live", "step": 12, "predicted_seconds": 1}, )"
            R"({"what": "checkpoint", "step": 10, "predicted_seconds": 2.5}, )"
            R"({"what": "replicas", "note": "none are kept"}])");
  EXPECT_EQ(Text(event, "choice"), "live");
  EXPECT_EQ(Text(event, "reason"), "the quickest of 2, by 1.5 s");
  EXPECT_EQ(Number(event, "predicted_seconds"), 1) << "half a second is assumed beside the move";
  EXPECT_EQ(Number(event, "seconds"), 0.75);
}

TEST_F(DecisionsTest, ASourceThatIsMissingSaysWhy) {
  policy_.replicate_every = 5;
  decisions_.Begin(Cause::kLoss);
  decisions_.WeighSources({Option(Source::kInitial, 0, 3)}, policy_);
  const LogEvent event = Decide({.generation = 5});
  EXPECT_EQ(Text(event, "reason"), "nothing else has the state");
  EXPECT_THAT(Json(event, "alternatives"),
              HasSubstr(R"({"what": "live", "note": "the workers' tensors are)"));
  EXPECT_THAT(Json(event, "alternatives"),
              HasSubstr(R"({"what": "replicas", "note": "no snapshot in memory is whole"})"));
  EXPECT_THAT(Json(event, "alternatives"),
              HasSubstr(R"({"what": "checkpoint", "note": "there is none"})"));
  EXPECT_TRUE(std::isnan(Number(event, "seconds"))) << "nobody had trained";
}

TEST_F(DecisionsTest, APlanIsWeighedAgainstTheOneInForce) {
  decisions_.Note({.worker = "c", .what = "its speed has changed", .slowdown = 2.5});
  decisions_.Begin(Cause::kDrift);
  decisions_.WeighPlans({{.what = "keep", .seconds = 100}, {.what = "replan", .seconds = 60}},
                        "replan", "it pays", 0.4);
  const LogEvent event = Decide({.generation = 7, .follows = 5, .pause = FromSeconds(0.5)});
  EXPECT_EQ(Text(event, "cause"), "drift");
  EXPECT_THAT(Json(event, "evidence"), HasSubstr(R"("slowdown": 2.5)"));
  EXPECT_EQ(Number(event, "predicted_seconds"), 0.4);
  decisions_.NoteStep(1000, now_, out_);
  EXPECT_TRUE(Taken().empty()) << "it was no recovery";
}

TEST_F(DecisionsTest, APlanThatStaysIsNoDecisionOfAGeneration) {
  decisions_.Note({.worker = "c", .what = "joined"});
  decisions_.Begin(Cause::kJoin);
  decisions_.WeighPlans({{.what = "keep", .seconds = 100}}, "keep", "it does not pay", 0.4);
  decisions_.LogKept(5, out_);
  const std::vector<LogEvent> events = Taken();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "plan_kept");
  EXPECT_EQ(std::get<int64_t>(*events[0].Find("generation")), 5);
  EXPECT_EQ(Text(events[0], "reason"), "it does not pay");
  EXPECT_EQ(Json(Decide({.generation = 6}), "evidence"), "[]") << "and that is over";
}

// Of what is under way the first recovery counts, but not what was planned before it.
TEST_F(DecisionsTest, ALossDuringAChangeIsTheCause) {
  decisions_.Begin(Cause::kJoin);
  decisions_.Begin(Cause::kLoss);
  decisions_.Begin(Cause::kUnreadable);
  EXPECT_EQ(Text(Decide({.generation = 6}), "cause"), "loss");
  decisions_.Begin(Cause::kForm);
  EXPECT_EQ(Text(Decide({.generation = 7}), "cause"), "form");
  decisions_.Begin(Cause::kLoss);
  decisions_.Note({.worker = "b", .what = "gone"});
  decisions_.Drop();
  decisions_.Begin(Cause::kLeave);
  const LogEvent event = Decide({.generation = 8});
  EXPECT_EQ(Text(event, "cause"), "leave");
  EXPECT_EQ(Json(event, "evidence"), "[]");
}

TEST_F(DecisionsTest, EvidenceIsKeptOnceAndWithinBounds) {
  for (int i = 0; i < 100; ++i) {
    decisions_.Note({.worker = "w" + std::to_string(i), .what = "came and died"});
    decisions_.Note({.worker = "w0", .what = "came and died"});
  }
  const std::string evidence = Json(Decide({.generation = 6}), "evidence");
  EXPECT_THAT(evidence, HasSubstr(R"("worker": "w63")"));
  EXPECT_THAT(evidence, testing::Not(HasSubstr(R"("worker": "w64")")));
  EXPECT_THAT(evidence, HasSubstr(R"({"what": "and 36 more"})"));
}

TEST_F(DecisionsTest, ARecoveryIsOverWhenTheJobIsWhereItHadBeen) {
  decisions_.Begin(Cause::kLoss);
  decisions_.WeighSources({Option(Source::kCheckpoint, 10, 2)}, policy_);
  Decide({.generation = 5, .follows = 3, .since = now_, .reached_step = 13});
  now_ += std::chrono::seconds(3);
  decisions_.NoteStep(12, now_, out_);
  EXPECT_TRUE(Taken().empty());
  now_ += std::chrono::seconds(1);
  decisions_.NoteStep(14, now_, out_);
  decisions_.NoteStep(15, now_, out_);
  const std::vector<LogEvent> events = Taken();
  ASSERT_EQ(events.size(), 1u) << "once";
  EXPECT_EQ(events[0].kind, "recovered");
  EXPECT_EQ(std::get<int64_t>(*events[0].Find("generation")), 5);
  EXPECT_EQ(Text(events[0], "source"), "checkpoint");
  EXPECT_EQ(Number(events[0], "predicted_seconds"), 2.5);
  EXPECT_EQ(Number(events[0], "seconds"), 4);
}

// What recoveries took beside their source is what the next one is predicted with.
TEST_F(DecisionsTest, TheNextPredictionKnowsWhatTheLastOnesTook) {
  const auto recover = [&](double seconds, bool has_waited) {
    decisions_.Begin(Cause::kLoss);
    decisions_.WeighSources({Option(Source::kLive, 10, 0.5)}, policy_);
    const LogEvent event =
        Decide({.generation = 5, .since = now_, .reached_step = 10, .has_waited = has_waited});
    now_ += FromSeconds(seconds);
    decisions_.NoteStep(10, now_, out_);
    Taken();
    return Number(event, "predicted_seconds");
  };
  EXPECT_EQ(recover(2, false), 1);
  EXPECT_EQ(recover(1000, true), 2) << "0.5 s of the source, and the 1.5 s before it";
  EXPECT_EQ(recover(0.1, false), 2) << "a wait for workers is no measure";
  EXPECT_EQ(recover(100, false), 2) << "of two the longer: 0.1 s is quicker than its source";
  EXPECT_EQ(recover(1, false), 2) << "of 0, 1.5 and 99.5 s, 1.5 s is the median";
  for (int i = 0; i < 4; ++i) {
    recover(1, false);
  }
  EXPECT_EQ(recover(1, false), 1) << "of the last five";
}

TEST_F(DecisionsTest, APreferredSourceIsTheChoiceAndTheReasonSaysSo) {
  policy_.recovery.prefer = Source::kCheckpoint;
  decisions_.Begin(Cause::kLoss);
  decisions_.WeighSources({Option(Source::kCheckpoint, 10, 2), Option(Source::kLive, 12, 0.5)},
                          policy_);
  const LogEvent event = Decide({.generation = 5});
  EXPECT_EQ(Text(event, "choice"), "checkpoint");
  EXPECT_EQ(Text(event, "reason"), "elastic.recover_from names it");
  EXPECT_EQ(Number(event, "predicted_seconds"), 2.5);
}

}  // namespace
}  // namespace heddle::elastic
