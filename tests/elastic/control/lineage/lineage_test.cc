// Histories of generations against a reference that keeps, for each step, what computed it.
#include "elastic/control/lineage/lineage.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle::elastic {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LineageTest : public ::testing::Test {
 protected:
  // The worker of this name computes on what the first letter of its name says.
  void Add(const std::string& name) {
    wire::Hello hello;
    hello.set_name(name);
    (*hello.mutable_arithmetic())["blas"] = name.substr(0, 1);
    roster_.Join(next_++, hello, {});
    roster_.Welcome(name, false, job_, 0, out_);
  }
  void Begin(const std::vector<std::string>& members, Source source, int64_t step) {
    lineage_.BeginGeneration(members, source, step, roster_, job_.policy);
  }
  std::string Refusal(const std::string& name) const {
    return lineage_.WhyRefused(name, {{"blas", name.substr(0, 1)}}, roster_, job_.policy);
  }

  Job job_;
  Roster roster_;
  Outbox out_{[] { return DurableState(); }};
  Lineage lineage_;
  ConnectionId next_ = 1;
};

TEST_F(LineageTest, IsThatOfEveryStepThatCounts) {
  const uint64_t seed = testing::TestSeed();
  Random random(seed);
  for (const char* name : {"x1", "x2", "y1", "y2"}) {
    Add(name);
  }
  const std::vector<std::vector<std::string>> groups = {
      {"x1"}, {"x1", "x2"}, {"y2", "y1"}, {"x2", "y1"}};
  const auto kinds_of = [](const std::vector<std::string>& members) {
    std::set<char> kinds;
    for (const std::string& name : members) {
      kinds.insert(name[0]);
    }
    return kinds;
  };
  int lost = 0;
  int kept = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::set<char>> steps;  // What computed each step that counts.
    lineage_.BeginJob(std::nullopt);
    for (int generation = 0; generation < 12; ++generation) {
      const auto& members = groups[random.Below(random.Below(2) == 0 ? 2 : groups.size())];
      const bool back = random.Below(3) == 0;
      const uint64_t step = back ? random.Below(steps.size() + 1) : steps.size();
      steps.resize(step);
      Begin(members,
            step == 0 ? Source::kInitial
            : back    ? Source::kCheckpoint
                      : Source::kLive,
            static_cast<int64_t>(step));
      if (random.Below(4) == 0) {  // Another coordinator goes on.
        DurableState durable;
        lineage_.Store(durable);
        lineage_ = Lineage();
        lineage_.Restore(durable, Provenance{.guarantee = Guarantee::kNone});
      }
      std::set<char> kinds = kinds_of(members);
      for (const auto& step_kinds : steps) {
        kinds.insert(step_kinds.begin(), step_kinds.end());
      }
      ASSERT_EQ(lineage_.newest().guarantee,
                kinds.size() == 1 ? Guarantee::kPlanInvariant : Guarantee::kPerPlan)
          << "seed " << seed << ", round " << round << ", generation " << generation;
      ++(kinds.size() == 1 ? kept : lost);
      steps.insert(steps.end(), random.Below(3), kinds_of(members));
      const uint64_t asked = random.Below(steps.size() + 1);
      std::set<char> until;
      for (uint64_t i = 0; i < asked; ++i) {
        until.insert(steps[i].begin(), steps[i].end());
      }
      ASSERT_EQ(lineage_.Of(static_cast<int64_t>(asked)).guarantee,
                until.size() <= 1 ? Guarantee::kPlanInvariant : Guarantee::kPerPlan)
          << "seed " << seed << ", round " << round << ", step " << asked;
    }
  }
  EXPECT_GT(lost, 100);
  EXPECT_GT(kept, 100);
}

TEST_F(LineageTest, GoesOnFromWhatTheCheckpointSays) {
  Add("x1");
  lineage_.BeginJob(Provenance{.guarantee = Guarantee::kUnknown, .reason = "it does not say"});
  Begin({"x1"}, Source::kCheckpoint, 40);
  EXPECT_EQ(lineage_.newest().guarantee, Guarantee::kUnknown);
  EXPECT_EQ(lineage_.newest().reason, "it does not say");
  Begin({"x1"}, Source::kInitial, 0);
  EXPECT_EQ(lineage_.newest().guarantee, Guarantee::kPlanInvariant) << "nothing of it is left";
}

TEST_F(LineageTest, AnotherNumberOfThreadsIsUnlike) {
  Add("x1");
  Begin({"x1"}, Source::kInitial, 0);
  const Provenance one = lineage_.newest();
  job_.policy.threads = 2;
  lineage_.BeginJob(one);
  Begin({"x1"}, Source::kCheckpoint, 4);
  EXPECT_EQ(lineage_.newest().guarantee, Guarantee::kPerPlan);
  EXPECT_THAT(lineage_.newest().reason, HasSubstr("threads 2, not 1"));
}

TEST_F(LineageTest, ACheckpointThatRoundsEndsAllPromises) {
  Add("x1");
  job_.policy.checkpoints_round = true;
  Begin({"x1"}, Source::kInitial, 0);
  Begin({"x1"}, Source::kLive, 4);
  EXPECT_EQ(lineage_.newest().guarantee, Guarantee::kPlanInvariant) << "none was read";
  Begin({"x1"}, Source::kCheckpoint, 4);
  EXPECT_EQ(lineage_.newest().guarantee, Guarantee::kNone);
  EXPECT_THAT(lineage_.newest().reason, HasSubstr("checkpoint of step 4"));
}

TEST_F(LineageTest, TellsWhatHasChanged) {
  Add("x1");
  Add("y1");
  const auto tell = [&](int64_t generation) {
    out_.Take();
    lineage_.Tell(generation, out_);
    return out_.Take();
  };
  Begin({"x1"}, Source::kInitial, 0);
  const auto first = tell(1);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(std::get<WriteLog>(first[0]).event,
            (LogEvent{"guarantee",
                      {{"generation", int64_t{1}},
                       {"guarantee", std::string("plan-invariant")},
                       {"reason", std::string()}}}));
  Begin({"x1"}, Source::kLive, 3);
  EXPECT_THAT(tell(2), IsEmpty());
  Begin({"x1", "y1"}, Source::kLive, 5);
  EXPECT_THAT(tell(3), SizeIs(1));
  Begin({"x1"}, Source::kLive, 6);
  EXPECT_THAT(tell(4), IsEmpty()) << "it stays lost";
  Begin({"x1"}, Source::kCheckpoint, 5);
  EXPECT_THAT(tell(5), SizeIs(1)) << "the steps of y1 are undone";
}

TEST_F(LineageTest, RefusesWhatWouldVoidADemand) {
  EXPECT_THAT(Refusal("x1"), IsEmpty());
  job_.policy.demanded = Guarantee::kPlanInvariant;
  EXPECT_THAT(Refusal("x1"), IsEmpty()) << "nobody is there, and nothing was computed";
  Add("x1");
  EXPECT_THAT(Refusal("x2"), IsEmpty());
  EXPECT_THAT(Refusal("y1"), HasSubstr("y1 computes unlike x1: blas y, not x"));
  Begin({"x1"}, Source::kInitial, 0);
  roster_.Dismiss("x1", "killed", true, out_);
  EXPECT_THAT(Refusal("y1"), HasSubstr("unlike the workers of its steps so far: blas y, not x"));
  EXPECT_THAT(Refusal(""), HasSubstr("this worker computes unlike"));
  job_.policy.demanded = Guarantee::kPerPlan;
  EXPECT_THAT(Refusal("y1"), IsEmpty());
}

}  // namespace
}  // namespace heddle::elastic
