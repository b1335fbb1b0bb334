// A change that made steps slower is taken back, and is not tried again.
#include "tests/elastic/control/drift/drift_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

class TakenBackTest : public DriftFixture {
 protected:
  TakenBackTest() { job_.policy.total_steps = 10'000; }
  // c comes, and takes part; 13 steps were made before it.
  void JoinAThird() {
    FormOf({"a", "b"}, kRate);
    Steps(13, 1);
    Join("c");
    Measure(kRate);
    ASSERT_TRUE(request_.has_value());
    Change({"a", "b"});
  }
  void Measure(double rate) {
    MeasureAll([rate](const auto& /*pair*/) { return rate; });
  }
  void Steps(int count, double seconds) {
    StepsOf(step_ + 1, std::vector<double>(static_cast<size_t>(count), seconds));
    step_ += count;
  }
  // The plan that is looked for comes into force after those that train have stopped.
  void Change(const std::vector<std::string>& training) {
    const int64_t generation = request_->generation;
    AnswerPlan();
    AnswerPrepared(generation);
    for (const std::string& name : training) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_prepared()->set_generation(generation);
      });
    }
    for (const std::string& name : training) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_stopped()->set_generation(stored_.held->number);
        message.mutable_stopped()->set_applied_step(step_);
      });
    }
    std::vector<std::string> ready = members_;
    for (const std::string& name : training) {
      if (std::find(ready.begin(), ready.end(), name) == ready.end()) {
        ready.push_back(name);
      }
    }
    AnswerReady(ready, generation);
    ASSERT_EQ(stored_.held->number, generation);
  }
  std::string Text(const std::string& kind, const std::string& field) const {
    return std::get<std::string>(*Logged(kind).Find(field));
  }

  static constexpr double kRate = 1e9;
  int64_t step_ = 0;
};

TEST_F(TakenBackTest, AChangeThatMadeStepsSlowerIsTakenBack) {
  JoinAThird();
  Steps(12, 1.5);
  EXPECT_FALSE(request_.has_value());
  Steps(1, 1.5);
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->former_plan_json, "plan 1");
  ASSERT_EQ(request_->candidates.size(), 2u);
  EXPECT_EQ(Count("plan_outcome"), 0) << "the change is still in force";
  Change({"a", "b", "c"});
  EXPECT_EQ(Text("plan_outcome", "verdict"), "taken_back");
  EXPECT_NEAR(Number("plan_outcome", "promised_seconds"), 1.0 / 3, 1e-9);
  EXPECT_EQ(Number("plan_outcome", "realised_seconds"), 1.5);
  EXPECT_EQ(Number("plan_outcome", "before_seconds"), 1);
  EXPECT_EQ(Text("decision", "cause"), "take_back");
  EXPECT_THAT(members_, ElementsAre("a", "b"));
  Steps(100, 3);
  EXPECT_EQ(Count("plan_outcome"), 1) << "what was taken back is no change to be judged";
  EXPECT_FALSE(request_.has_value());
}

TEST_F(TakenBackTest, WhereThePlanBeforeIsRefusedTheChangeStays) {
  JoinAThird();
  Steps(13, 1.5);
  ASSERT_TRUE(request_.has_value());
  PlanOutcome refused;
  refused.request_id = std::exchange(request_, std::nullopt)->id;
  refused.status = ResourceExhaustedError("no room");
  Tell(Planned{refused});
  Steps(100, 1.5);
  EXPECT_EQ(Count("plan_outcome"), 1);
  EXPECT_EQ(Text("plan_outcome", "verdict"), "kept");
  EXPECT_EQ(Text("plan_kept", "cause"), "take_back");
  EXPECT_EQ(stored_.held->number, 3) << "that of the change";
  EXPECT_FALSE(request_.has_value()) << "it is not asked for again";
}

TEST_F(TakenBackTest, TheSameChangeIsNotTriedAgain) {
  JoinAThird();
  Steps(13, 1.5);
  ASSERT_TRUE(request_.has_value());
  Change({"a", "b", "c"});
  Steps(13, 1);
  Tell(ProcessExited{"c", 0, "killed"});
  Hello("c", [](wire::Hello& hello) {
    hello.set_incarnation(std::string(16, 'C'));
    hello.set_network("net-c");
    hello.set_probe_address("probe of c");
  });
  From("c", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  Measure(kRate);
  EXPECT_FALSE(request_.has_value());
  Steps(5, 1);
  EXPECT_EQ(Count("plan_kept"), 1) << "once";
  EXPECT_THAT(Text("plan_kept", "reason"), testing::HasSubstr("was tried before"));
  Join("d");
  Measure(kRate);
  EXPECT_TRUE(request_.has_value()) << "it is another one";
}

TEST_F(TakenBackTest, LinksThatChangedAreAnotherReason) {
  JoinAThird();
  Steps(13, 1.5);
  ASSERT_TRUE(request_.has_value());
  Change({"a", "b", "c"});
  Windows({9, 1, 1, 1, 1, 1, 4, 4, 4, 4});
  Measure(0.1 * kRate);
  EXPECT_EQ(Count("link_drift"), 1);
  EXPECT_TRUE(request_.has_value());
}

TEST_F(TakenBackTest, OneThatMadeThemQuickerIsKept) {
  JoinAThird();
  Steps(13, 0.7);
  EXPECT_EQ(Text("plan_outcome", "verdict"), "kept");
  EXPECT_FALSE(request_.has_value());
}

TEST_F(TakenBackTest, WhoLeavesComesFirst) {
  JoinAThird();
  Steps(12, 1.5);
  Tell(DrainRequested{"b"});
  Wait(0.2, {"a", "b", "c"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->former_plan_json, "");
  Steps(20, 1.5);
  EXPECT_EQ(Count("plan_outcome"), 0);
}

}  // namespace
}  // namespace heddle::elastic
