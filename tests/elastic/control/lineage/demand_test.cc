// The guarantee in the whole coordinator: what it shows, logs, saves and refuses.
#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DemandTest : public CoordinatorTest {
 protected:
  void HelloOn(const std::string& name, const std::string& blas) {
    Hello(name, [&](wire::Hello& hello) { (*hello.mutable_arithmetic())["blas"] = blas; });
  }
  void JoinOn(const std::string& name, const std::string& blas) {
    HelloOn(name, blas);
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  void FormOn(const std::string& a, const std::string& b) {
    Tell(Submitted{job_});
    JoinOn("a", a);
    JoinOn("b", b);
    AnswerPlan();
    AnswerPrepared(1);
    AnswerReady(members_, 1);
  }
  std::string Logged(const std::string& kind, const std::string& field) const {
    return std::get<std::string>(*CoordinatorTest::Logged(kind).Find(field));
  }
  wire::JobStatus Shown() const { return coordinator_.StatusAt(now_); }
};

TEST_F(DemandTest, AlikeWorkersAreShownAsSuch) {
  EXPECT_FALSE(Shown().has_guarantee());
  FormOn("SkylakeX", "SkylakeX");
  EXPECT_EQ(Shown().guarantee(), "plan-invariant");
  EXPECT_THAT(Shown().guarantee_reason(), IsEmpty());
  EXPECT_EQ(Shown().workers(0).arithmetic().at("blas"), "SkylakeX");
  EXPECT_EQ(Logged("guarantee", "guarantee"), "plan-invariant");
}

TEST_F(DemandTest, UnlikeWorkersAreNamed) {
  FormOn("SkylakeX", "Haswell");
  const std::string why = "b computes unlike a: blas Haswell, not SkylakeX";
  EXPECT_EQ(Shown().guarantee(), "per-plan");
  EXPECT_EQ(Shown().guarantee_reason(), why);
  EXPECT_EQ(Logged("guarantee", "guarantee"), "per-plan");
  EXPECT_EQ(Logged("guarantee", "reason"), why);
}

TEST_F(DemandTest, ARelaxedJobIsPromisedNothing) {
  job_.policy.exact_sums = false;
  FormOn("SkylakeX", "SkylakeX");
  EXPECT_EQ(Shown().guarantee(), "none");
}

TEST_F(DemandTest, ACheckpointIsSavedWithIt) {
  FormOn("SkylakeX", "Haswell");
  Step(10);
  for (const char* name : {"a", "b"}) {
    From(name, [](wire::FromWorker& message) {
      message.mutable_checkpoint_part()->set_step(10);
      message.mutable_checkpoint_part()->set_generation(1);
    });
  }
  ASSERT_FALSE(commits_.empty());
  EXPECT_EQ(commits_[0].facts.provenance.guarantee, Guarantee::kPerPlan);
}

TEST_F(DemandTest, AWorkerThatWouldVoidADemandIsRefusedAndTheJobGoesOn) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  FormOn("SkylakeX", "SkylakeX");
  HelloOn("c", "Haswell");
  const wire::ToWorker* const refused = Last("c", wire::ToWorker::kRefused);
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(refused->refused().permanent());
  EXPECT_THAT(refused->refused().reason(), HasSubstr("blas Haswell, not SkylakeX"));
  EXPECT_EQ(Logged("worker_refused", "worker"), "c");
  EXPECT_EQ(Logged("worker_refused", "host"), "host-c");
  EXPECT_EQ(Shown().workers_size(), 2);
  EXPECT_EQ(Shown().phase(), "training");
  HelloOn("d", "SkylakeX");
  EXPECT_NE(Last("d", wire::ToWorker::kWelcome), nullptr);
}

// Two cards, and a third worker that leaves its device to the job: its processor is no matter.
TEST_F(DemandTest, AWorkerThatLeavesItsDeviceToTheJobIsJudgedWhenItKnowsIt) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  job_.devices = {{"", "auto"}, {"e", "cpu"}};
  const auto hello = [&](const std::string& name, const std::string& blas, bool knows) {
    Hello(name, [&](wire::Hello& message) {
      (*message.mutable_arithmetic())["blas"] = blas;
      message.set_device_of_job(!knows);
    });
  };
  FormOn("cublas", "cublas");
  hello("c", "Haswell", false);
  ASSERT_NE(Last("c", wire::ToWorker::kWelcome), nullptr);
  EXPECT_EQ(Shown().workers(2).arithmetic_size(), 0) << "not known yet";
  hello("c", "cublas", true);
  EXPECT_EQ(Last("c", wire::ToWorker::kRefused), nullptr);
  EXPECT_EQ(Shown().workers(2).arithmetic().at("blas"), "cublas");

  hello("d", "cublas", false);
  hello("d", "Haswell", true);
  const wire::ToWorker* const refused = Last("d", wire::ToWorker::kRefused);
  ASSERT_NE(refused, nullptr);
  EXPECT_TRUE(refused->refused().permanent());
  EXPECT_THAT(refused->refused().reason(), HasSubstr("blas Haswell, not cublas"));
  EXPECT_EQ(Shown().workers_size(), 3);

  hello("e", "Haswell", false);
  EXPECT_NE(Last("e", wire::ToWorker::kRefused), nullptr) << "the job gives it the processor";
}

// It comes first, by its name and in time, and is no measure for others nor for itself.
TEST_F(DemandTest, NobodyIsJudgedByAWorkerThatDoesNotKnowItsDevice) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  job_.devices = {{"", "auto"}};
  Tell(Submitted{job_});
  Hello("a", [](wire::Hello& message) { message.set_device_of_job(true); });
  HelloOn("b", "cublas");
  EXPECT_NE(Last("b", wire::ToWorker::kWelcome), nullptr);
  HelloOn("a", "Haswell");
  EXPECT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
}

TEST_F(DemandTest, AWorkerThatDoesNotSayWhatItComputesOnIsNotPlannedWith) {
  job_.devices = {{"", "auto"}};
  FormOn("cublas", "cublas");
  Hello("c", [](wire::Hello& message) { message.set_device_of_job(true); });
  From("c", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  EXPECT_EQ(Logged("worker_lost", "reason"), "it does not say what it computes on");
}

TEST_F(DemandTest, WithoutADemandItJoins) {
  for (const Guarantee demanded : {Guarantee::kNone, Guarantee::kPerPlan}) {
    coordinator_ = Coordinator();
    sent_.clear();
    job_.policy.demanded = demanded;
    FormOn("SkylakeX", "SkylakeX");
    HelloOn("c", "Haswell");
    EXPECT_NE(Last("c", wire::ToWorker::kWelcome), nullptr) << NameOf(demanded);
  }
}

// It must not take the place of a worker that fits.
TEST_F(DemandTest, AnUnlikeProcessTakesNobodysName) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  FormOn("SkylakeX", "SkylakeX");
  Tell(Disconnected{connections_.at("b")});
  Hello("b", [](wire::Hello& hello) {
    hello.set_incarnation(std::string(16, 'x'));
    (*hello.mutable_arithmetic())["blas"] = "Haswell";
  });
  EXPECT_NE(Last("b", wire::ToWorker::kRefused), nullptr);
  EXPECT_EQ(Count("worker_lost"), 0);
}

TEST_F(DemandTest, OfThoseThatWaitForAJobTheFirstDecides) {
  HelloOn("a", "SkylakeX");
  HelloOn("b", "Haswell");
  HelloOn("c", "SkylakeX");
  job_.policy.demanded = Guarantee::kPlanInvariant;
  Tell(Submitted{job_});
  EXPECT_NE(Last("a", wire::ToWorker::kWelcome), nullptr);
  EXPECT_NE(Last("b", wire::ToWorker::kRefused), nullptr);
  EXPECT_NE(Last("c", wire::ToWorker::kWelcome), nullptr);
  EXPECT_EQ(Shown().workers_size(), 2);
}

TEST_F(DemandTest, TheCheckpointDecidesBeforeAnyWorker) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  job_.provenance =
      Provenance{.arithmetic = {{"blas", "SkylakeX"}, {"processor", "EPYC"}, {"threads", "1"}}};
  Tell(Submitted{job_});
  HelloOn("a", "Haswell");
  EXPECT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
  Tell(ProcessExited{.worker = "a", .pid = 0, .reason = "exit code 2", .last = true});
  ASSERT_TRUE(end_.has_value());
  EXPECT_TRUE(end_->bad_input);
  EXPECT_THAT(end_->reason, HasSubstr("blas Haswell, not SkylakeX"));
}

TEST_F(DemandTest, ARestartedCoordinatorKnowsWhatItsStepsWereComputedOn) {
  FormOn("SkylakeX", "Haswell");
  coordinator_ = Coordinator(stored_, job_, now_);
  EXPECT_EQ(Shown().guarantee(), "per-plan");
  EXPECT_EQ(Shown().guarantee_reason(), "b computes unlike a: blas Haswell, not SkylakeX");
}

TEST_F(DemandTest, ARestartedCoordinatorRefusesTheSame) {
  job_.policy.demanded = Guarantee::kPlanInvariant;
  FormOn("SkylakeX", "SkylakeX");
  coordinator_ = Coordinator(stored_, job_, now_);
  HelloOn("c", "Haswell");
  EXPECT_NE(Last("c", wire::ToWorker::kRefused), nullptr);
}

}  // namespace
}  // namespace heddle::elastic
