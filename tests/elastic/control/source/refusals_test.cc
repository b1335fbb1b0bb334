// Copies of the state that do not fit their hashes: they are not gone on from, and others are.
#include "elastic/control/source/refusals.h"

#include "tests/elastic/control/source/source_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RefusalsTest, OneHoldersCopyOfOneStateIsRefused) {
  Refusals refusals;
  refusals.Add({.holder = "a", .generation = 3, .receiver = "c"});
  refusals.Add({.holder = "b", .generation = 2, .step = 8, .receiver = "c"});
  EXPECT_TRUE(refusals.Has("a", 3, RefusedState::kTensors));
  EXPECT_FALSE(refusals.Has("a", 4, RefusedState::kTensors));
  EXPECT_FALSE(refusals.Has("a", 3, 8));
  EXPECT_FALSE(refusals.Has("b", 3, RefusedState::kTensors));
  EXPECT_TRUE(refusals.Has("b", 2, 8));
  EXPECT_FALSE(refusals.Has("b", 2, 12));
  EXPECT_THAT(refusals.HoldersRefusedBy("c"), ElementsAre("a", "b"));
  EXPECT_THAT(refusals.HoldersRefusedBy("a"), IsEmpty());
}

TEST(RefusalsTest, WhatAWorkerFoundAmissInItsOwnMemoryStandsWhateverElseItFound) {
  Refusals refusals;
  refusals.Add({.holder = "c", .generation = 2, .step = 8, .receiver = "c"});
  refusals.Add({.holder = "a", .generation = 2, .step = 8, .receiver = "c"});
  EXPECT_THAT(refusals.HoldersRefusedBy("c"), ElementsAre("a"));
  refusals.Forgive("c");
  EXPECT_FALSE(refusals.Has("a", 2, 8));
  EXPECT_TRUE(refusals.Has("c", 2, 8));
}

TEST(RefusalsTest, AnotherGenerationHasItsOwnTensorsAndTheSameSnapshots) {
  Refusals refusals;
  refusals.Add({.holder = "a", .generation = 3, .receiver = "c"});
  refusals.Add({.holder = "b", .generation = 2, .step = 8, .receiver = "c"});
  refusals.Add({.holder = "b", .generation = 1, .step = 4, .receiver = "c"});
  refusals.BeginGeneration({{2, {}}, {4, {}}});
  DurableState durable;
  refusals.Store(durable);
  EXPECT_THAT(durable.refused,
              ElementsAre(RefusedState{.holder = "b", .generation = 2, .step = 8}));
  Refusals restored;
  restored.Restore(durable);
  EXPECT_TRUE(restored.Has("b", 2, 8));
}

/// `receiver` answers that what came from the holders is something else.
class RefusedTest : public SourceTest {
 protected:
  void RefuseFrom(const std::string& receiver,
                  int64_t generation,
                  const std::vector<std::string>& holders) {
    From(receiver, [&](wire::FromWorker& message) {
      wire::Ready& ready = *message.mutable_ready();
      ready.set_generation(generation);
      ready.set_error("DATA_LOSS: it differs");
      for (const std::string& holder : holders) {
        wire::Ready::Refused& refused = *ready.add_refused();
        refused.set_holder(holder);
        refused.set_chunk("master of head [0:4], piece 1 of 1");
        refused.set_expected(0xab);
        refused.set_found(0xcd);
        refused.set_chunks(2);
      }
    });
  }
  // All that a halted worker has: the state after step 13, and its shards of the snapshot of 12.
  void Halt(int64_t fence, const std::vector<std::string>& names) {
    const std::map<std::string, std::vector<int32_t>> parts = {
        {"a", {0, 2}}, {"b", {0, 1}}, {"c", {1, 2}}};
    for (const std::string& name : names) {
      HaltedWith(name, fence, 13, {{1, 12, parts.at(name)}});
    }
    Wait(0.2, names);
  }
  // c is killed after step 13 of 100, with a checkpoint of 10. `split`: nobody else has its state.
  void LoseOne(bool split) {
    FormThree(split);
    StepTo(1, 10);
    CommitAt(10);
    StepTo(11, 13);
    Tell(ProcessExited{"c", 0, "killed"});
    Halt(2, {"a", "b"});
    AnswerPlan(split);
    AnswerPrepared(3);
  }
  void Prepare(int64_t generation, bool split = false) {
    AnswerPlan(split);
    AnswerPrepared(generation);
  }
  std::string Text(const char* field) const {
    return std::get<std::string>(*LastOf("state_refused").Find(field));
  }
};

TEST_F(RefusedTest, AnotherHolderOfTheSameTensorsIsTaken) {
  LoseOne(/*split=*/false);
  ASSERT_THAT(Started("a").held().workers(), ElementsAre("a", "b"));
  RefuseFrom("b", 3, {"a"});
  EXPECT_EQ(Text("worker"), "b");
  EXPECT_EQ(Text("from"), "a");
  EXPECT_EQ(Text("source"), "live");
  EXPECT_EQ(Text("what"), "master of head [0:4], piece 1 of 1");
  EXPECT_EQ(Text("expected"), "00000000000000ab");
  EXPECT_EQ(Text("found"), "00000000000000cd");
  EXPECT_EQ(std::get<int64_t>(*LastOf("state_refused").Find("step")), 13);
  EXPECT_EQ(std::get<int64_t>(*LastOf("state_refused").Find("generation")), 1);
  EXPECT_EQ(std::get<int64_t>(*LastOf("state_refused").Find("chunks")), 2);
  Halt(4, {"a", "b"});
  EXPECT_EQ(Chosen(), "live");
  Prepare(5);
  EXPECT_THAT(Started("a").held().workers(), ElementsAre("b"));
  EXPECT_EQ(Started("a").applied_step(), 13) << "of one step";
  EXPECT_EQ(Count("worker_lost"), 1) << "c alone";
  AnswerReady(members_, 5);
  EXPECT_NE(Last("a", wire::ToWorker::kGo), nullptr);
}

TEST_F(RefusedTest, WithoutAnotherHolderTheSnapshotIsTakenThenTheCheckpoint) {
  LoseOne(/*split=*/false);
  RefuseFrom("b", 3, {"a"});
  Halt(4, {"a", "b"});
  Prepare(5);
  RefuseFrom("a", 5, {"b"});
  Halt(6, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  Prepare(7);
  EXPECT_EQ(Started("a").applied_step(), 12);
  EXPECT_EQ(Started("a").replicas().holders_size(), 2);
  RefuseFrom("a", 7, {"a"});  // Its own shard of the snapshot, which b has not.
  Halt(8, {"a", "b"});
  EXPECT_EQ(Chosen(), "checkpoint");
  Prepare(9);
  EXPECT_EQ(Started("a").checkpoint_step(), 10);
  EXPECT_EQ(Count("state_refused"), 3);
  EXPECT_EQ(Count("worker_lost"), 1) << "c alone";
  AnswerReady(members_, 9);
  EXPECT_EQ(std::get<int64_t>(*LastOf("resumed").Find("steps_repeated")), 3);
}

TEST_F(RefusedTest, TheOtherHoldersOfASnapshotGiveWhatOneHasOtherwise) {
  FormThree(/*split=*/true);
  StepTo(1, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  HaltedWith("a", 2, 13, {{1, 12, {0, 1, 2}}});
  HaltedWith("b", 2, 13, {{1, 12, {0, 1, 2}}});
  Wait(0.2, {"a", "b"});
  Prepare(3, /*split=*/true);
  ASSERT_TRUE(Started("a").has_replicas());
  RefuseFrom("b", 3, {"a"});
  EXPECT_EQ(Text("source"), "replicas");
  EXPECT_EQ(std::get<int64_t>(*LastOf("state_refused").Find("step")), 12);
  HaltedWith("a", 4, 13, {{1, 12, {0, 1, 2}}});
  HaltedWith("b", 4, 13, {{1, 12, {0, 1, 2}}});
  Wait(0.2, {"a", "b"});
  EXPECT_EQ(Chosen(), "replicas");
  Prepare(5, /*split=*/true);
  ASSERT_EQ(Started("a").replicas().holders_size(), 1);
  EXPECT_EQ(Started("a").replicas().holders(0).worker(), "b");
  EXPECT_EQ(Started("a").applied_step(), 12);
}

TEST_F(RefusedTest, WhoRefusesTwoHoldersIsAtFaultItself) {
  FormThree(/*split=*/false);
  StepTo(1, 13);
  Join("d");
  AnswerPlan();
  AnswerPrepared(3);
  for (const char* name : {"a", "b", "c"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_stopped()->set_generation(1);
      message.mutable_stopped()->set_applied_step(13);
    });
  }
  ASSERT_TRUE(Started("d").has_held());
  RefuseFrom("d", 3, {"a", "c"});
  EXPECT_EQ(std::get<std::string>(*LastOf("worker_lost").Find("worker")), "d");
  EXPECT_THAT(std::get<std::string>(*LastOf("worker_lost").Find("reason")),
              HasSubstr("from a and c has other hashes"));
  EXPECT_EQ(Count("state_refused"), 2);
  Halt(4, {"a", "b", "c"});
  Prepare(5);
  EXPECT_THAT(Started("a").held().workers(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(Started("a").move_members_size(), 3);
}

TEST_F(RefusedTest, WhoRefusesAHolderAndThenTheCheckpointIsAtFaultItself) {
  LoseOne(/*split=*/false);
  const auto halt = [&](int64_t fence, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      HaltedWith(name, fence, 13, {});
    }
    Wait(0.2, names);
  };
  RefuseFrom("b", 3, {"a"});
  halt(4, {"a", "b"});
  Prepare(5);
  RefuseFrom("a", 5, {"b"});
  halt(6, {"a", "b"});
  EXPECT_EQ(Chosen(), "checkpoint");
  Prepare(7);
  Refuse("b", 7);
  EXPECT_EQ(Count("checkpoint_refused"), 0);
  EXPECT_EQ(std::get<std::string>(*LastOf("worker_lost").Find("worker")), "b");
  EXPECT_THAT(std::get<std::string>(*LastOf("worker_lost").Find("reason")),
              HasSubstr("from a and the checkpoint of step 10"));
  halt(8, {"a"});
  EXPECT_EQ(Chosen(), "live") << "a is believed again";
  Prepare(9);
  EXPECT_THAT(Started("a").held().workers(), ElementsAre("a"));
}

TEST_F(RefusedTest, WhatIsRefusedStaysSoForARestartedCoordinator) {
  LoseOne(/*split=*/false);
  RefuseFrom("b", 3, {"a"});
  EXPECT_THAT(stored_.refused,
              ElementsAre(RefusedState{.holder = "a", .generation = 1, .receiver = "b"}));
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  for (const char* name : {"a", "b"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_applied_step(13);
      hello.set_standing(wire::STANDING_HALTED);
      hello.set_standing_generation(1);
    });
  }
  Wait(0.2, {"a", "b"});
  const wire::ToWorker* halt = Last("a", wire::ToWorker::kHalt);
  ASSERT_NE(halt, nullptr);
  const int64_t fence = halt->halt().generation();
  Halt(fence, {"a", "b"});
  Prepare(fence + 1);
  EXPECT_THAT(Started("a").held().workers(), ElementsAre("b"));
}

TEST_F(RefusedTest, ARefusalOfSomebodyWhoGivesNothingIsAnErrorLikeOthers) {
  LoseOne(/*split=*/false);
  RefuseFrom("b", 3, {"z"});
  EXPECT_EQ(Count("state_refused"), 0);
  EXPECT_EQ(stored_.refused.size(), 0U);
  Wait(1.0, {"a", "b"});
  EXPECT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
}

}  // namespace
}  // namespace heddle::elastic
