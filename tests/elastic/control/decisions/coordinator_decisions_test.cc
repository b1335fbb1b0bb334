// Which decision each way to another generation leaves in the log.
#include <nlohmann/json.hpp>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class CoordinatorDecisionsTest : public CoordinatorTest {
 protected:
  std::string Text(const std::string& field, const std::string& kind = "decision") const {
    return std::get<std::string>(*Logged(kind).Find(field));
  }
  Json List(const std::string& field, const std::string& kind = "decision") const {
    return Json::parse(std::get<RawJson>(*Logged(kind).Find(field)).text);
  }
  int64_t Number(const std::string& field, const std::string& kind = "decision") const {
    return std::get<int64_t>(*Logged(kind).Find(field));
  }
  double Seconds(const std::string& field, const std::string& kind = "decision") const {
    return std::get<double>(*Logged(kind).Find(field));
  }
  void SetUpAnew() {
    coordinator_ = Coordinator();
    log_.clear();
    stored_ = {};
  }
  void Accuse(const std::string& from, const std::string& peer, const std::string& reason) {
    From(from, [&](wire::FromWorker& message) {
      message.mutable_peer_lost()->set_generation(1);
      message.mutable_peer_lost()->set_peer(peer);
      message.mutable_peer_lost()->set_reason(reason);
    });
  }
  /// A survivor that holds everything answers until another generation is in force.
  void RecoverWith(const std::vector<std::string>& names, int64_t applied) {
    for (const std::string& name : names) {
      Halted(name, 2, applied, applied, true);
    }
    Wait(0.2, names);
    AnswerPlan();
    AnswerPrepared(3);
    AnswerReady(members_, 3);
  }
};

TEST_F(CoordinatorDecisionsTest, TheFirstGenerationHasOne) {
  Form();
  EXPECT_EQ(Count("decision"), 1);
  EXPECT_EQ(Number("generation"), 1);
  EXPECT_EQ(Number("follows"), 0);
  EXPECT_EQ(Text("cause"), "form");
  EXPECT_EQ(Text("choice"), "initial");
  EXPECT_EQ(List("evidence")[0]["what"], "2 of 2 workers came");
  EXPECT_TRUE(std::isnan(Seconds("seconds"))) << "nobody had trained before";
  EXPECT_EQ(Count("recovered"), 0);
}

TEST_F(CoordinatorDecisionsTest, ALossNamesWhoFellSilentAndWhoReportedIt) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  for (const char* name : {"a", "b", "c"}) {
    Join(name);
  }
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady(members_, 1);
  Step(1);
  Accuse("a", "b", "connection reset");
  Accuse("c", "b", "connection reset");
  Wait(0.7, {"a", "c"});
  RecoverWith({"a", "c"}, 1);
  ASSERT_EQ(Count("decision"), 2);
  EXPECT_EQ(Number("generation"), 3);
  EXPECT_EQ(Number("follows"), 1);
  EXPECT_EQ(Text("cause"), "loss");
  const Json evidence = List("evidence");
  ASSERT_EQ(evidence.size(), 1u);
  EXPECT_EQ(evidence[0]["worker"], "b");
  EXPECT_EQ(evidence[0]["accusers"], Json({"a", "c"}));
  EXPECT_NEAR(evidence[0]["silent_seconds"].get<double>(), 0.5, 0.11);
  EXPECT_EQ(Text("choice"), "live");
  EXPECT_EQ(List("alternatives")[0]["what"], "live");
  EXPECT_GT(Seconds("seconds"), 0.1);
  ASSERT_EQ(Count("recovered"), 1) << "nothing had to be run again";
  EXPECT_EQ(Seconds("seconds", "recovered"), Seconds("seconds"));
  EXPECT_EQ(Seconds("predicted_seconds", "recovered"), Seconds("predicted_seconds"));
}

TEST_F(CoordinatorDecisionsTest, ALeaseAfterARecoveryABetterPlanIsLookedFor) {
  Form();
  Step(1);
  Tell(ProcessExited{"b", 0, "killed"});
  EXPECT_FALSE(request_.has_value());
  Halted("a", 2, 1, 1, true);
  Wait(0.2, {"a"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_FALSE(request_->current_runs) << "everybody waits for it";
  AnswerPlan();
  AnswerPrepared(3);
  AnswerReady(members_, 3);
  Wait(2.8, {"a"});
  EXPECT_FALSE(request_.has_value()) << "others may come back";
  Wait(0.4, {"a"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_TRUE(request_->current_runs);
  PlanOutcome same;
  same.request_id = request_->id;
  same.members = {"a"};
  same.predicted_step_seconds = same.current_step_seconds = 1;
  request_.reset();
  Tell(Planned{same});
  EXPECT_EQ(Text("cause", "plan_kept"), "improve");
  Wait(5, {"a"});
  EXPECT_FALSE(request_.has_value()) << "once";
}

// The plan that takes it in was looked for at leisure.
TEST_F(CoordinatorDecisionsTest, WhereAnotherComesNoBetterPlanIsLookedForBeside) {
  Form();
  Step(1);
  Tell(ProcessExited{"b", 0, "killed"});
  RecoverWith({"a"}, 1);
  Join("c");
  ASSERT_TRUE(request_.has_value());
  PlanOutcome same;
  same.request_id = request_->id;
  same.members = {"a"};
  same.predicted_step_seconds = same.current_step_seconds = 1;
  request_.reset();
  Tell(Planned{same});
  EXPECT_EQ(Text("cause", "plan_kept"), "join");
  Wait(5, {"a", "c"});
  EXPECT_FALSE(request_.has_value());
}

TEST_F(CoordinatorDecisionsTest, AFailureWithoutAGuiltyOneNamesWhoFailed) {
  Form();
  Step(1);
  Accuse("a", "", "out of memory");
  Wait(0.7, {"a", "b"});
  RecoverWith({"a", "b"}, 1);
  EXPECT_EQ(Text("cause"), "failure");
  EXPECT_EQ(List("evidence")[0]["worker"], "a");
  EXPECT_THAT(List("evidence")[0]["what"].get<std::string>(), HasSubstr("out of memory"));
}

// The first step that was lost is run again before the recovery is over.
TEST_F(CoordinatorDecisionsTest, ARecoveryIsOverOnceItsStepsAreRunAgain) {
  Form();
  for (int64_t step = 1; step <= 3; ++step) {
    Step(step);
  }
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  From("a", [](wire::FromWorker& message) { message.mutable_halted()->set_generation(2); });
  Wait(0.2, {"a"});
  AnswerPlan();
  AnswerPrepared(3);
  AnswerReady(members_, 3);
  EXPECT_EQ(Text("choice"), "initial");
  EXPECT_EQ(List("alternatives")[0]["step"], 0);
  EXPECT_EQ(List("alternatives")[1]["what"], "live");
  EXPECT_TRUE(List("alternatives")[1].contains("note"));
  Step(1);
  Step(2);
  EXPECT_EQ(Count("recovered"), 0);
  now_ += std::chrono::seconds(2);
  Step(3);
  ASSERT_EQ(Count("recovered"), 1);
  EXPECT_EQ(Number("generation", "recovered"), 3);
  EXPECT_GE(Seconds("seconds", "recovered"), Seconds("seconds") + 2);
  Step(4);
  EXPECT_EQ(Count("recovered"), 1);
}

TEST_F(CoordinatorDecisionsTest, AJoinIsWeighedAgainstThePlanInForce) {
  Form();
  Step(1);
  Join("c");
  AnswerPlan();
  AnswerPrepared(3);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(2);
    });
  }
  now_ += std::chrono::milliseconds(400);
  AnswerReady(members_, 3);
  EXPECT_EQ(Text("cause"), "join");
  EXPECT_EQ(Text("choice"), "replan");
  EXPECT_EQ(List("evidence"), Json::parse(R"([{"worker": "c", "what": "joined"}])"));
  const Json alternatives = List("alternatives");
  EXPECT_EQ(alternatives[0]["what"], "keep");
  EXPECT_EQ(alternatives[0]["predicted_seconds"], 99) << "a second a step is left of each";
  EXPECT_NEAR(alternatives[1]["predicted_seconds"].get<double>(), 99 / 3.0 + 0.1, 1e-6);
  EXPECT_NEAR(Seconds("seconds"), 0.4, 1e-9) << "from the stop";
  EXPECT_EQ(Count("recovered"), 0);
}

// The planner is as wrong for the other plan as for the one that trains.
TEST_F(CoordinatorDecisionsTest, WhatIsMeasuredScalesWhatIsPredicted) {
  Form();
  StepsOf(1, std::vector<double>(13, 0.25));
  Join("c");
  ASSERT_TRUE(request_.has_value());
  AnswerPlan();  // A third of a second instead of one.
  AnswerPrepared(3);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(13);
    });
  }
  AnswerReady(members_, 3);
  const Json alternatives = List("alternatives");
  EXPECT_EQ(alternatives[0]["predicted_seconds"], 87 * 0.25) << "as measured";
  EXPECT_NEAR(alternatives[1]["predicted_seconds"].get<double>(), 87 * 0.25 / 3 + 0.1, 1e-6);
  EXPECT_EQ(Seconds("scale"), 0.25);
  EXPECT_THAT(Text("reason"), HasSubstr("scaled by 0.25"));
}

// Of each second that is predicted of a step two thirds would be saved.
TEST_F(CoordinatorDecisionsTest, AGainThatPaysByPredictionAloneIsNone) {
  for (const double seconds : {0.5, 0.002}) {
    SetUpAnew();
    Form();
    StepsOf(1, std::vector<double>(13, seconds));
    Join("c");
    ASSERT_TRUE(request_.has_value());
    AnswerPlan();
    EXPECT_EQ(Count("plan_kept"), seconds < 0.1 ? 1 : 0) << seconds;
  }
}

TEST_F(CoordinatorDecisionsTest, WithTooFewStepsNothingIsScaledAndTheEventSaysSo) {
  Form();
  StepsOf(1, std::vector<double>(12, 0.002));
  Join("c");
  ASSERT_TRUE(request_.has_value());
  PlanOutcome same;
  same.request_id = request_->id;
  same.members = {"a", "b", "c"};
  same.predicted_step_seconds = same.current_step_seconds = 1;
  TakePlan(same);
  EXPECT_EQ(List("alternatives", "plan_kept")[0]["predicted_seconds"], 88);
  EXPECT_TRUE(std::isnan(Seconds("scale", "plan_kept")));
  EXPECT_THAT(Text("reason", "plan_kept"),
              HasSubstr("nothing is scaled: 7 steps were measured, and 8 are needed"));
}

TEST_F(CoordinatorDecisionsTest, AJoinWithoutAPlanLeavesTheOneInForceAndSaysWhy) {
  Form();
  Step(1);
  Join("c");
  ASSERT_TRUE(request_.has_value());
  PlanOutcome none;
  none.request_id = request_->id;
  none.status = InternalError("the plan's programs do not fit each other");
  request_.reset();
  Tell(Planned{none});
  ASSERT_EQ(Count("plan_kept"), 1);
  EXPECT_EQ(Text("cause", "plan_kept"), "join");
  EXPECT_THAT(Text("reason", "plan_kept"), HasSubstr("the plan's programs do not fit each other"));
  EXPECT_EQ(List("alternatives", "plan_kept").size(), 2u);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");
  Wait(5, {"a", "b", "c"});
  EXPECT_FALSE(request_.has_value()) << "once";
}

TEST_F(CoordinatorDecisionsTest, AJoinThatDoesNotPayLeavesThePlanInForce) {
  Form();
  Step(1);
  Join("c");
  ASSERT_TRUE(request_.has_value());
  PlanOutcome outcome;
  outcome.request_id = request_->id;
  outcome.members = {"a", "b", "c"};
  outcome.predicted_step_seconds = 0.99;
  outcome.current_step_seconds = 1;
  TakePlan(outcome);
  EXPECT_EQ(Count("decision"), 1) << "of the generation that stays";
  ASSERT_EQ(Count("plan_kept"), 1);
  EXPECT_EQ(Number("generation", "plan_kept"), 1);
  EXPECT_EQ(Text("cause", "plan_kept"), "join");
  EXPECT_EQ(Text("choice", "plan_kept"), "keep");
  EXPECT_THAT(Text("reason", "plan_kept"), HasSubstr("may be wrong by"));
  EXPECT_EQ(List("alternatives", "plan_kept")[0]["predicted_seconds"], 99);
  Tell(ProcessExited{"c", 0, "killed"});
  Tell(ProcessExited{"b", 0, "killed"});
  RecoverWith({"a"}, 1);
  EXPECT_EQ(List("evidence").size(), 1u) << "c stood by: its loss is of no generation";
  EXPECT_EQ(List("evidence")[0]["worker"], "b");
}

TEST_F(CoordinatorDecisionsTest, AChangeThatWasGivenUpLeavesNoEvidenceToTheNext) {
  Form();
  Step(1);
  Join("c");
  ASSERT_TRUE(request_.has_value());
  Join("d");
  Tell(
      ProcessExited{"c", 0, "killed"});  // Its plan is given up, and one with d looked for at once.
  const int64_t next = request_->generation;
  AnswerPlan();
  EXPECT_EQ(members_, (std::vector<std::string>{"a", "b", "d"}));
  AnswerPrepared(next);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(2);
    });
  }
  AnswerReady(members_, next);
  ASSERT_EQ(Count("decision"), 2);
  EXPECT_EQ(List("evidence"), Json::parse(R"([{"worker": "d", "what": "joined"}])"));
}

TEST_F(CoordinatorDecisionsTest, AMemberThatLeavesHasToBeLetGo) {
  Form();
  Step(1);
  Tell(DrainRequested{"b"});
  Wait(0.2, {"a", "b"});
  AnswerPlan();
  EXPECT_EQ(members_, std::vector<std::string>{"a"});
  AnswerPrepared(3);
  From("b", [](wire::FromWorker& message) { message.mutable_prepared()->set_generation(3); });
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(2);
    });
  }
  AnswerReady({"a", "b"}, 3);
  ASSERT_EQ(Count("decision"), 2);
  EXPECT_EQ(Text("cause"), "leave");
  EXPECT_EQ(List("evidence")[0]["worker"], "b");
  EXPECT_EQ(List("alternatives")[0]["note"], "a member leaves");
}

TEST_F(CoordinatorDecisionsTest, ARestartThatFindsAMemberMissingSaysSo) {
  Form();
  Step(1);
  coordinator_ = Coordinator(stored_, job_, now_);
  log_.clear();
  Hello("a", [](wire::Hello& hello) {
    hello.set_generation(1);
    hello.set_standing(wire::STANDING_TRAINING);
    hello.set_standing_generation(1);
  });
  Wait(6, {"a"});
  RecoverWith({"a"}, 1);
  ASSERT_EQ(Count("decision"), 1);
  EXPECT_EQ(Text("cause"), "restart");
  const Json evidence = List("evidence");
  ASSERT_EQ(evidence.size(), 2u);
  EXPECT_EQ(evidence[0]["worker"], "b");
  EXPECT_THAT(evidence[1]["what"].get<std::string>(), HasSubstr("started again"));
  EXPECT_EQ(Number("follows"), 1);
}

}  // namespace
}  // namespace heddle::elastic
