// Which states a generation can go on from, by what survivors say, and which is the quickest.
#include "elastic/control/source/state_sources.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Generation 1 of a and b, who hold half of the state each.
class StateSourcesTest : public testing::Test {
 protected:
  StateSourcesTest() {
    policy_.replicate_every = 1;
    Begin(1, 0);
    steps_.GoOnAfter(20);
  }
  void Begin(int64_t number, int64_t after_step) {
    DurableGeneration held{.number = number, .plan = {}, .members = {{"a", "A"}, {"b", "B"}}};
    held.plan.plan_json = "plan " + std::to_string(number);
    held.plan.members = {"a", "b"};
    held.plan.parameters = {{0}, {1}};
    held.plan.parameter_count = 2;
    held.plan.predicted_step_seconds = 2;
    generations_.Begin(held);
    sources_.BeginGeneration(held, after_step, policy_);
  }
  // The state of `generation` after `applied`, the norm of `norm_step` known.
  void Says(const std::string& name,
            int64_t applied,
            int64_t norm_step,
            bool voted,
            double norm = 0.25,
            int64_t generation = 1) {
    wire::Halted& halted = survey_[name];
    halted.set_held_generation(generation);
    halted.set_applied_step(applied);
    halted.set_norm_step(norm_step);
    halted.set_norm(norm);
    halted.set_voted(voted);
  }
  void Keeps(const std::string& name,
             int64_t generation,
             int64_t step,
             std::initializer_list<int32_t> owners,
             int64_t raw_bytes = 0) {
    wire::Halted::Replicas& replicas = *survey_[name].add_replicas();
    replicas.set_generation(generation);
    replicas.set_step(step);
    replicas.set_raw_bytes(raw_bytes);
    replicas.mutable_owners()->Assign(owners.begin(), owners.end());
  }
  std::optional<SourceOption> Find(Source source) {
    for (SourceOption& option :
         sources_.Options(survey_, generations_, steps_, saves_, policy_.recovery)) {
      if (option.source == source) {
        EXPECT_TRUE(sources_.Check(option).ok());
        return option;
      }
    }
    return std::nullopt;
  }
  Source First() {
    return sources_.Options(survey_, generations_, steps_, saves_, policy_.recovery).front().source;
  }
  void Moved(Source source, int64_t bytes, double seconds) {
    wire::Ready ready;
    ready.set_seconds(seconds);
    (*ready.mutable_moved_bytes())["memory"] = bytes;
    sources_.NoteMove(source, {{"a", ready}});
  }

  JobPolicy policy_;
  Generations generations_{1};
  Steps steps_;
  Saves saves_;
  StateSources sources_;
  Survey survey_;
};

TEST_F(StateSourcesTest, ThoseThatHoldEverythingAreALiveSource) {
  Says("a", 20, 20, false);
  EXPECT_FALSE(Find(Source::kLive)) << "the half of b";
  Says("b", 20, 20, true);
  const auto live = Find(Source::kLive);
  ASSERT_TRUE(live);
  EXPECT_EQ(live->step, 20);
  EXPECT_THAT(live->holders, ElementsAre("a", "b"));
  EXPECT_FALSE(live->settle) << "nobody is behind";
}

TEST_F(StateSourcesTest, AStepWhoseNormIsKnownIsSettledByThoseBehind) {
  Says("a", 20, 20, true, 0.125);
  Says("b", 20, 21, true, 0.5);
  const auto live = Find(Source::kLive);
  ASSERT_TRUE(live);
  EXPECT_EQ(live->step, 21);
  ASSERT_TRUE(live->settle);
  EXPECT_EQ(live->settle->step(), 21);
  EXPECT_EQ(live->settle->norm(), 0.5) << "as the one that knows it has it";
}

TEST_F(StateSourcesTest, AStepThatTheVoteRefusedIsSettledWithoutItsUpdate) {
  Says("a", 20, 20, true, 0.125);
  // The loss was no number; the norm may be one.
  for (const double norm : {0.5, std::numeric_limits<double>::quiet_NaN()}) {
    Says("b", 21, 21, false, norm);
    survey_["b"].set_not_finite(true);
    const auto live = Find(Source::kLive);
    ASSERT_TRUE(live && live->settle);
    EXPECT_EQ(live->step, 21);
    EXPECT_TRUE(live->settle->skip());
  }
  survey_["a"].set_not_finite(true);  // Of step 20, which both have behind them.
  survey_["b"].set_not_finite(false);
  EXPECT_FALSE(Find(Source::kLive)->settle->skip());
}

TEST_F(StateSourcesTest, WhoIsBehindWithoutItsVoteOrByMoreThanAStepIsNoHolder) {
  Says("b", 21, 21, false);
  Says("a", 20, 20, false);
  EXPECT_FALSE(Find(Source::kLive)) << "its gradients are not complete";
  Says("a", 19, 19, true);
  EXPECT_FALSE(Find(Source::kLive)) << "two steps behind";
  Says("a", 20, 20, true);
  EXPECT_TRUE(Find(Source::kLive));
}

TEST_F(StateSourcesTest, OnlyMembersWithTheStateThatCountsAreHeard) {
  Says("a", 20, 20, false);
  Says("b", 20, 20, false, 0, 7);
  EXPECT_FALSE(Find(Source::kLive)) << "another generation's state";
  survey_["b"].set_staged_generation(1);
  survey_["b"].set_staged_step(20);
  EXPECT_TRUE(Find(Source::kLive)) << "moved there, its Go was lost";
  generations_.RemoveMember("b");
  EXPECT_FALSE(Find(Source::kLive)) << "it was given up";
}

TEST_F(StateSourcesTest, TheNewestSnapshotThatIsCompleteCounts) {
  Keeps("a", 1, 16, {0, 1});
  Keeps("a", 1, 18, {0});
  Keeps("b", 1, 18, {0});
  EXPECT_EQ(Find(Source::kReplicas)->step, 16) << "part 1 of step 18 is missing";
  Keeps("b", 1, 18, {1});
  const auto snapshot = Find(Source::kReplicas);
  EXPECT_EQ(snapshot->step, 18);
  EXPECT_EQ(snapshot->snapshot_generation, 1);
  EXPECT_EQ(snapshot->replicas.plan_json(), "plan 1");
  EXPECT_THAT(snapshot->holders, ElementsAre("a", "b"));
  EXPECT_THAT(snapshot->replicas.holders(), SizeIs(3));
}

TEST_F(StateSourcesTest, ASnapshotOfAStepThatIsNotKnownIsNotGoneOnFrom) {
  Keeps("a", 1, 21, {0, 1});
  EXPECT_FALSE(Find(Source::kReplicas));
  Keeps("a", 1, 20, {0, 1});
  EXPECT_EQ(Find(Source::kReplicas)->step, 20);
}

TEST_F(StateSourcesTest, RanksThatOwnNothingAreNoParts) {
  Keeps("a", 1, 18, {0, 1, 5});
  const auto snapshot = Find(Source::kReplicas);
  ASSERT_TRUE(snapshot);
  EXPECT_THAT(snapshot->replicas.holders(0).owners(), ElementsAre(0, 1));
}

TEST_F(StateSourcesTest, ASnapshotThatCouldNotBeReadIsNotOfferedAgain) {
  Keeps("a", 1, 16, {0, 1});
  Keeps("a", 1, 18, {0, 1});
  sources_.RefuseSnapshot(1, 18);
  EXPECT_EQ(Find(Source::kReplicas)->step, 16);
  sources_.RefuseSnapshot(1, 16);
  EXPECT_FALSE(Find(Source::kReplicas));
}

TEST_F(StateSourcesTest, WhereTheJobWentBackLaterSnapshotsAreVoid) {
  Keeps("a", 1, 10, {0, 1});
  Keeps("a", 1, 18, {0, 1});
  Begin(2, 12);
  EXPECT_EQ(Find(Source::kReplicas)->step, 10);
  Keeps("a", 2, 18, {0, 1});
  EXPECT_EQ(Find(Source::kReplicas)->snapshot_generation, 2);
}

TEST_F(StateSourcesTest, PlansOfTheNewestFourGenerationsAreKept) {
  Keeps("a", 1, 10, {0, 1});
  for (const int64_t generation : {2, 3, 4}) {
    Begin(generation, 20);
  }
  EXPECT_TRUE(Find(Source::kReplicas));
  Begin(5, 20);
  EXPECT_FALSE(Find(Source::kReplicas));
  DurableState durable;
  sources_.Store(durable);
  EXPECT_THAT(durable.snapshots, SizeIs(4));
}

TEST_F(StateSourcesTest, WithoutSnapshotsNoneAreRemembered) {
  policy_.replicate_every = 0;
  StateSources none;
  none.BeginGeneration(*generations_.held(), 0, policy_);
  DurableState durable;
  none.Store(durable);
  EXPECT_THAT(durable.snapshots, IsEmpty());
}

TEST_F(StateSourcesTest, TheCheckpointOrTheSeedIsThereUnlessNoneIsSound) {
  EXPECT_EQ(sources_.Stored(saves_)->source, Source::kInitial);
  saves_.Restore({10, 15});
  EXPECT_EQ(sources_.Stored(saves_)->step, 15);
  saves_.Refuse(15, "damaged");
  EXPECT_EQ(sources_.Stored(saves_)->step, 10);
  saves_.Refuse(10, "damaged");
  EXPECT_FALSE(sources_.Stored(saves_)) << "the seed would lose the run without a word";
}

// No step was measured: the plan's 2 s a step count.
TEST_F(StateSourcesTest, StepsToRepeatAndBytesToMoveAreWeighed) {
  saves_.Restore({19});
  Keeps("a", 1, 18, {0, 1});
  EXPECT_EQ(First(), Source::kCheckpoint) << "one step less to repeat";
  sources_.NoteStateBytes(3'000'000'000);
  EXPECT_EQ(First(), Source::kReplicas) << "15 s and 2 s against 6 s and 4 s";
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 15 + 2);
  EXPECT_EQ(Find(Source::kReplicas)->seconds, 6 + 4);
}

TEST_F(StateSourcesTest, WhatASourceIsMeasuredAtCountsFromThen) {
  saves_.Restore({20});
  sources_.NoteStateBytes(1000);
  Moved(Source::kCheckpoint, 1000, 10);
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 10);
  Moved(Source::kCheckpoint, 99, 1000);  // Less than a tenth of the state.
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 10);
  Moved(Source::kCheckpoint, 100, 10);
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 100);
  Moved(Source::kCheckpoint, 1000, 0);
  Moved(Source::kCheckpoint, 1000, std::numeric_limits<double>::infinity());
  Moved(Source::kCheckpoint, 1000, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 100) << "no time is no rate";
}

TEST_F(StateSourcesTest, AtEqualSecondsTheNewestComesFirst) {
  Says("a", 20, 20, false);
  Says("b", 20, 20, false);
  Keeps("a", 1, 20, {0, 1});
  saves_.Restore({20});
  const auto options = sources_.Options(survey_, generations_, steps_, saves_, policy_.recovery);
  ASSERT_THAT(options, SizeIs(3));
  EXPECT_EQ(options[0].source, Source::kLive);
  EXPECT_EQ(options[1].source, Source::kReplicas);
  EXPECT_EQ(options[2].source, Source::kCheckpoint);
}

TEST_F(StateSourcesTest, APartThatIsMissingIsABrokenInvariant) {
  SourceOption option{.source = Source::kReplicas, .snapshot_generation = 1};
  EXPECT_FALSE(sources_.Check(option).ok());
  option.snapshot_generation = 9;
  EXPECT_FALSE(sources_.Check(option).ok());
}

TEST_F(StateSourcesTest, EverySourceHasItsNameAndItsRate) {
  EXPECT_EQ(std::string(NameOf(Source::kInitial)), "initial");
  EXPECT_EQ(std::string(NameOf(Source::kCheckpoint)), "checkpoint");
  EXPECT_EQ(std::string(NameOf(Source::kReplicas)), "replicas");
  EXPECT_EQ(std::string(NameOf(Source::kLive)), "live");
  policy_.recovery = {
      .live_bytes_per_second = 8, .replica_bytes_per_second = 4, .storage_bytes_per_second = 2};
  sources_.NoteStateBytes(64);
  sources_.NoteStateBytes(0);  // Not known now: what was known stays.
  EXPECT_EQ(Find(Source::kInitial)->seconds, 20 * 2) << "all 20 steps again, of 2 s each";
  Says("a", 20, 20, false);
  Says("b", 20, 20, false);
  EXPECT_EQ(Find(Source::kLive)->seconds, 0) << "nobody is lost, so nothing moves";
  saves_.Restore({18});
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 2 * 2 + 64 / 2);
  Keeps("a", 1, 19, {0, 1});
  EXPECT_EQ(Find(Source::kReplicas)->seconds, 2 + 64 / 4);
}

// Both hold everything, one is lost: its half is what those that take over copy.
TEST_F(StateSourcesTest, OfALiveSourceTheShareOfTheLostIsMoved) {
  DurableGeneration held = *generations_.held();
  held.plan.parameters = {{0, 1}, {0, 1}};
  generations_.Begin(held);
  generations_.RemoveMember("b");
  sources_.NoteStateBytes(64);
  policy_.recovery.live_bytes_per_second = 8;
  Says("a", 20, 20, false);
  EXPECT_EQ(Find(Source::kLive)->bytes, 32);
  EXPECT_EQ(Find(Source::kLive)->seconds, 4);
}

TEST_F(StateSourcesTest, TheStateIsAsLargeAsItsPartsInTheMean) {
  Keeps("a", 1, 19, {0, 1}, 300);
  Keeps("b", 1, 19, {1}, 150);
  EXPECT_EQ(Find(Source::kReplicas)->bytes, 300) << "two parts of 150 in the mean";
  Keeps("b", 1, 19, {0}, -1000);
  EXPECT_EQ(Find(Source::kReplicas)->bytes, 300) << "it is known by now";
  sources_ = StateSources();
  sources_.BeginGeneration(*generations_.held(), 20, policy_);
  EXPECT_EQ(Find(Source::kReplicas)->bytes, 225) << "450 of four parts; a size is not negative";
}

TEST_F(StateSourcesTest, MeasuredStepsCountBeforeThePlansOwn) {
  google::protobuf::RepeatedPtrField<wire::StepRecord> records;
  records.Add()->set_step(21);
  records.Mutable(0)->set_seconds(0.5);
  Outbox out([] { return DurableState(); });
  steps_.Take(records, policy_, out);
  saves_.Restore({19});
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 2 * 0.5);
}

TEST_F(StateSourcesTest, AStepBeyondTheRecordIsTheNewest) {
  Says("a", 22, 22, false);
  Says("b", 22, 22, false);
  saves_.Restore({20});
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 2 * 2) << "two steps behind the live one";
}

TEST_F(StateSourcesTest, AMoveInLessThanASecondAndOfOneByteIsARateToo) {
  saves_.Restore({20});
  sources_.NoteStateBytes(10);
  Moved(Source::kCheckpoint, 1, 0.5);
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 5) << "a tenth of the state, at 2 bytes a second";
  Moved(Source::kCheckpoint, 0, 1);
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 5);
}

// All workers move at once: the slowest counts, and the bytes of all of them and of every kind.
TEST_F(StateSourcesTest, ARateIsThatOfAllWorkersTogether) {
  saves_.Restore({20});
  sources_.NoteStateBytes(1000);
  wire::Ready quick;
  quick.set_seconds(1);
  (*quick.mutable_moved_bytes())["memory"] = 300;
  (*quick.mutable_moved_bytes())["checkpoint"] = 100;
  wire::Ready slow = quick;
  slow.set_seconds(4);
  sources_.NoteMove(Source::kCheckpoint, {{"a", slow}, {"b", quick}});
  EXPECT_EQ(Find(Source::kCheckpoint)->seconds, 1000 / (800 / 4));
}

TEST_F(StateSourcesTest, SnapshotsAreStoredAndRestoredAsTheyAre) {
  Begin(2, 12);
  DurableState durable;
  sources_.Store(durable);
  EXPECT_EQ(durable.snapshots.at(1), (SnapshotSource{"plan 1", {0, 1}, 12}));
  EXPECT_EQ(durable.snapshots.at(2), (SnapshotSource{"plan 2", {0, 1}, INT64_MAX}));
  StateSources next;
  next.Restore(durable);
  DurableState again;
  next.Store(again);
  EXPECT_EQ(again.snapshots, durable.snapshots);
  next.Clear();
  DurableState none;
  next.Store(none);
  EXPECT_THAT(none.snapshots, IsEmpty());
}

TEST_F(StateSourcesTest, StepsBelowZeroAndUnknownGenerationsAreNoSnapshots) {
  Keeps("a", 1, -1, {0, 1});
  Keeps("a", 9, 10, {0, 1});
  EXPECT_FALSE(Find(Source::kReplicas));
  Keeps("a", 1, 0, {0, 1});
  EXPECT_EQ(Find(Source::kReplicas)->step, 0);
}

TEST_F(StateSourcesTest, WithoutSurvivorsNothingIsLiveNotEvenAStateOfNoParameters) {
  DurableGeneration held = *generations_.held();
  held.plan.parameters = {{}, {}};
  held.plan.parameter_count = 0;
  generations_.Begin(held);
  EXPECT_FALSE(Find(Source::kLive));
}

TEST_F(StateSourcesTest, OneThatIsBehindIsEnoughForASettle) {
  for (const bool turned : {false, true}) {
    Says(turned ? "b" : "a", 20, 20, true, 0.125);
    Says(turned ? "a" : "b", 21, 21, false, 0.5);
    const auto live = Find(Source::kLive);
    ASSERT_TRUE(live && live->settle) << turned;
    EXPECT_EQ(live->settle->norm(), 0.5);
  }
}

}  // namespace
}  // namespace heddle::elastic
