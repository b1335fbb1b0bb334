// Whether all that members should have alike is alike; and what follows when it is not.
#include "elastic/control/agreement/agreement.h"

#include "tests/elastic/control/source/source_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

wire::Certificate Says(int64_t step,
                       uint64_t identity,
                       const std::map<int32_t, uint64_t>& digests) {
  wire::Certificate certificate;
  certificate.set_step(step);
  certificate.set_identity(identity);
  for (const auto& [parameter, digest] : digests) {
    certificate.add_parameters(parameter);
    certificate.add_digests(digest);
  }
  return certificate;
}

/// a and b hold parameter 0, b and c parameter 1, all three parameter 2.
class FindDisagreementTest : public testing::Test {
 protected:
  FindDisagreementTest() {
    plan_.members = {"a", "b", "c"};
    plan_.parameters = {{0, 2}, {0, 1, 2}, {1, 2}};
    plan_.parameter_count = 3;
    said_ = {{"a", Says(5, 9, {{0, 10}, {2, 12}})},
             {"b", Says(5, 9, {{0, 10}, {1, 11}, {2, 12}})},
             {"c", Says(5, 9, {{1, 11}, {2, 12}})}};
  }
  Disagreement Find() {
    const auto found = FindDisagreement(plan_, 5, said_);
    EXPECT_TRUE(found);
    return found.value_or(Disagreement());
  }

  PlanOutcome plan_;
  Certificates said_;
};

TEST_F(FindDisagreementTest, AllAreAsPlannedAndAlike) {
  EXPECT_FALSE(FindDisagreement(plan_, 5, said_));
}

TEST_F(FindDisagreementTest, WhoDiffersFromTwoOthersIsNamed) {
  said_["c"].set_digests(1, 99);
  const Disagreement found = Find();
  EXPECT_THAT(found.workers, ElementsAre("c"));
  EXPECT_TRUE(found.decided);
  EXPECT_THAT(found.parameters, ElementsAre(Pair(2, ElementsAre("a", "b"))));
  EXPECT_THAT(found.what, HasSubstr("parameter 2: 000000000000000c at a b, 0000000000000063 at c"));
}

TEST_F(FindDisagreementTest, OfTwoThatDifferBothAreNamed) {
  said_["a"].set_digests(0, 99);
  const Disagreement found = Find();
  EXPECT_THAT(found.workers, ElementsAre("a", "b"));
  EXPECT_FALSE(found.decided);
  EXPECT_THAT(found.parameters, ElementsAre(Pair(0, IsEmpty())));
}

// b's copy is of a: between a and c nobody can tell.
TEST_F(FindDisagreementTest, ACopyIsNoWitness) {
  said_["c"].set_digests(1, 99);
  const auto found = FindDisagreement(plan_, 5, said_, {{2, {"a", "c"}}});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->decided);
  EXPECT_THAT(found->workers, ElementsAre("a", "b", "c"));
  EXPECT_THAT(found->parameters, ElementsAre(Pair(2, IsEmpty())));
}

TEST_F(FindDisagreementTest, AMajorityHasMostWitnessesToo) {
  said_["c"].set_digests(1, 99);
  for (const auto& witnesses : {Witnesses{{2, {"a", "b"}}}, Witnesses{{2, {"a", "b", "c"}}},
                                Witnesses{{2, {"x"}}}, Witnesses{{0, {"a", "c"}}}}) {
    const auto found = FindDisagreement(plan_, 5, said_, witnesses);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->decided);
    EXPECT_THAT(found->workers, ElementsAre("c"));
  }
}

TEST_F(FindDisagreementTest, AWitnessAgainstItsCopiesIsNotOutvoted) {
  said_["c"].set_digests(1, 99);
  const auto found = FindDisagreement(plan_, 5, said_, {{2, {"c"}}});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->decided) << "it may have been altered after it gave the copies";
}

TEST_F(FindDisagreementTest, AnotherStepAnotherStreamOrNoWordIsADifference) {
  said_["a"].set_step(4);
  EXPECT_THAT(Find().workers, ElementsAre("a"));
  said_["a"].set_step(5);
  said_["b"].set_identity(8);
  EXPECT_THAT(Find().workers, ElementsAre("b"));
  EXPECT_THAT(Find().what, HasSubstr("random streams"));
  said_["b"].set_identity(9);
  said_.erase("c");
  EXPECT_THAT(Find().workers, ElementsAre("c"));
}

TEST_F(FindDisagreementTest, EveryParameterIsHeldByThoseThatThePlanSays) {
  for (const auto& digests : std::vector<std::map<int32_t, uint64_t>>{
           {{2, 12}}, {{0, 10}, {1, 11}, {2, 12}}, {{0, 10}, {1, 11}}, {}}) {
    said_["a"] = Says(5, 9, digests);
    EXPECT_THAT(Find().workers, ElementsAre("a")) << digests.size();
    EXPECT_TRUE(Find().decided);
  }
  said_["a"] = Says(5, 9, {{0, 10}, {2, 12}});
  said_["a"].add_parameters(3);
  EXPECT_THAT(Find().workers, ElementsAre("a")) << "without a digest";
}

/// a, b and c hold the same.
class DigestsTest : public SourceTest {
 protected:
  void Digests(const std::string& name, int64_t step, uint64_t digest, int64_t generation = 1) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_state_digests()->set_generation(generation);
      *message.mutable_state_digests()->mutable_certificate() = Says(step, 9, {{0, digest}});
    });
  }
  void Agree(int64_t step, const std::vector<std::string>& names = {"a", "b", "c"}) {
    for (const std::string& name : names) {
      Digests(name, step, 100);
    }
  }
  void Halt(int64_t fence, const std::vector<std::string>& names, std::vector<Parts> parts = {}) {
    for (const std::string& name : names) {
      HaltedWith(name, fence, 13, parts);
    }
    Wait(0.2, names);
  }
  void AnswerReadyAs(const std::map<std::string, uint64_t>& digests, int64_t generation) {
    for (const auto& [name, digest] : digests) {
      From(name, [&, digest = digest](wire::FromWorker& message) {
        message.mutable_ready()->set_generation(generation);
        *message.mutable_ready()->mutable_certificate() = Says(13, 0, {{0, digest}});
      });
    }
  }
  std::string Workers() const {
    return std::get<RawJson>(*LastOf("state_disagrees").Find("workers")).text;
  }
};

TEST_F(DigestsTest, WhoDiffersFromMostGetsItsStateAnewFromTheOthers) {
  FormThree(/*split=*/false);
  StepTo(1, 10);
  Agree(10);
  EXPECT_EQ(Count("state_disagrees"), 0);
  Wait(1.2, {"a", "b", "c"});
  StepTo(11, 13);
  Digests("a", 13, 100);
  Digests("b", 13, 77);
  EXPECT_EQ(Count("state_disagrees"), 0) << "c has not said yet";
  Digests("c", 13, 100);
  EXPECT_EQ(Workers(), "[\"b\"]");
  EXPECT_EQ(std::get<std::string>(*LastOf("state_disagrees").Find("majority")), "yes");
  EXPECT_EQ(std::get<int64_t>(*LastOf("state_disagrees").Find("agreed_step")), 10);
  ASSERT_NE(Last("b", wire::ToWorker::kHalt), nullptr);
  EXPECT_THAT(stored_.refused, ElementsAre(RefusedState{.holder = "b", .generation = 1}));
  Halt(2, {"a", "b", "c"});
  EXPECT_EQ(Chosen(), "live");
  AnswerPlan();
  AnswerPrepared(3);
  EXPECT_THAT(Started("b").held().workers(), ElementsAre("a", "c"));
  EXPECT_EQ(Count("worker_lost"), 0);
  AnswerReady(members_, 3);
  EXPECT_NE(Last("b", wire::ToWorker::kGo), nullptr);
  // The second time it is not given its state once more.
  Step(14);
  Digests("a", 14, 100, 3);
  Digests("b", 14, 77, 3);
  Digests("c", 14, 100, 3);
  EXPECT_EQ(std::get<std::string>(*LastOf("worker_lost").Find("worker")), "b");
}

TEST_F(DigestsTest, OfTwoNobodyIsBelievedAndWhatWasKeptSinceTheyAgreedIsVoid) {
  FormThree(/*split=*/false);
  StepTo(1, 10);
  CommitAt(10);
  Agree(10);
  StepTo(11, 12);
  CommitAt(12);
  StepTo(13, 13);
  Digests("a", 13, 100);
  Digests("b", 13, 77);
  Digests("c", 13, 66);
  EXPECT_EQ(Workers(), R"(["a", "b", "c"])");
  EXPECT_EQ(std::get<std::string>(*LastOf("state_disagrees").Find("majority")), "no");
  Halt(2, {"a", "b", "c"}, {{1, 12, {0, 1, 2}}});
  EXPECT_EQ(Chosen(), "checkpoint");
  EXPECT_EQ(Candidates().size(), 1U) << "no tensors, and no snapshot of a later step";
  AnswerPlan();
  AnswerPrepared(3);
  EXPECT_EQ(Started("a").checkpoint_step(), 10) << "12 is of a state that nobody has compared";
}

// What was found is stored, and nobody has been halted for it.
TEST_F(DigestsTest, ARestartedCoordinatorGoesOnWithWhatItFound) {
  FormThree(/*split=*/false);
  StepTo(1, 10);
  CommitAt(10);
  Agree(10);
  StepTo(11, 13);
  Digests("a", 13, 100);
  Digests("b", 13, 77);
  Digests("c", 13, 66);
  job_.checkpoints = {10};
  coordinator_ = Coordinator(stored_, job_, now_);
  sent_.clear();
  for (const char* name : {"a", "b", "c"}) {
    Hello(name, [](wire::Hello& hello) {
      hello.set_generation(1);
      hello.set_applied_step(13);
      hello.set_standing(wire::STANDING_FINISHED);
      hello.set_standing_generation(1);
    });
  }
  const wire::ToWorker* halt = Last("a", wire::ToWorker::kHalt);
  ASSERT_NE(halt, nullptr);
  Halt(halt->halt().generation(), {"a", "b", "c"});
  EXPECT_EQ(Chosen(), "checkpoint");
}

TEST_F(DigestsTest, ASnapshotOfTheStepThatAllAgreedOnIsGoneOnFrom) {
  FormThree(/*split=*/false);
  StepTo(1, 13);
  Agree(12);
  Digests("a", 13, 100);
  Digests("b", 13, 77);
  Digests("c", 13, 66);
  Halt(2, {"a", "b", "c"}, {{1, 12, {0, 1, 2}}});
  EXPECT_EQ(Chosen(), "replicas");
}

TEST_F(DigestsTest, WhatIsSaidOfAnotherGenerationOrComesLateIsNotCompared) {
  FormThree(/*split=*/false);
  StepTo(1, 13);
  for (const char* name : {"a", "b", "c"}) {
    Digests(name, 12, static_cast<uint64_t>(name[0]), 2);
  }
  EXPECT_EQ(Count("state_disagrees"), 0);
  Agree(13);
  Digests("b", 12, 77);
  Digests("b", 13, 77);
  EXPECT_EQ(Count("state_disagrees"), 0);
}

TEST_F(DigestsTest, NobodyGoesOnFromAMoveAfterWhichTheReplicasDiffer) {
  FormThree(/*split=*/false);
  StepTo(1, 13);
  Tell(ProcessExited{"c", 0, "killed"});
  Halt(2, {"a", "b"});
  AnswerPlan();
  AnswerPrepared(3);
  sent_.clear();
  AnswerReadyAs({{"a", 1}, {"b", 2}}, 3);
  EXPECT_EQ(Last("a", wire::ToWorker::kGo), nullptr);
  EXPECT_EQ(Workers(), R"(["a", "b"])");
  ASSERT_NE(Last("a", wire::ToWorker::kHalt), nullptr);
  Halt(4, {"a", "b"});
  EXPECT_EQ(Chosen(), "initial") << "there is no checkpoint";
}

TEST_F(DigestsTest, WhoIsNewAndDiffersFromMostIsLost) {
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
  AnswerReadyAs({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 2}}, 3);
  EXPECT_EQ(std::get<std::string>(*LastOf("worker_lost").Find("worker")), "d");
  EXPECT_THAT(stored_.refused, IsEmpty());
}

}  // namespace
}  // namespace heddle::elastic
