// A worker's trainer by itself: what it makes of the commands that its member gives it.
#include "elastic/worker/trainer/trainer.h"

#include <cstdlib>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "base/system/file.h"
#include "elastic/service/job_planner.h"
#include "elastic/service/job_policy.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kJob = R"(
name: trainer
steps: 3
seed: 1
model:
  model_type: llama
  hidden_size: 16
  intermediate_size: 32
  num_hidden_layers: 1
  num_attention_heads: 2
  num_key_value_heads: 2
  max_position_embeddings: 32
batch: {microbatch: 2, global: 2, sequence: 16}
optimizer: {learning_rate: 1e-3}
workers:
  - {name: a}
checkpoint: {every: 0, last: false}
)";

/// The only worker of a job of three steps.
class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    ::setenv("HEDDLE_CACHE", folder_.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    const std::string data = folder_.path() + "/text.txt";
    std::ofstream text(data);
    for (int line = 0; line < 200; ++line) {
      text << "a few words of prose\n";
    }
    text.close();
    auto config = job::ParseJob(kJob + ("data: {text: " + data + "}\n"), "the job");
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    job_ = MakeJob(*config, folder_.path());
    comm::EndpointOptions options;
    options.config = {.worker = "a", .job = job_.id, .secret = "secret"};
    options.metrics = &registry_;
    endpoint_ = *comm::Endpoint::Create(options);
    auto trainer = Trainer::Create({.worker = "a",
                                    .job = *config,
                                    .policy = job_.policy,
                                    .output_folder = folder_.path(),
                                    .emulation = {},
                                    .endpoint_options = options,
                                    .endpoint = endpoint_.get(),
                                    .registry = &registry_,
                                    .post = [this](const MemberEvent& event) { Take(event); }});
    EXPECT_TRUE(trainer.ok()) << trainer.status().ToString();
    trainer_ = *std::move(trainer);
    const Result<std::string> profile = trainer_->MeasureProfile();
    EXPECT_TRUE(profile.ok()) << profile.status().ToString();
    PlanRequest request;
    request.generation = 1;
    request.candidates = {{.name = "a", .host = "here", .profile_json = *profile}};
    const PlanOutcome plan = JobPlanner().Plan(job_, request);
    EXPECT_TRUE(plan.status.ok()) << plan.status.ToString();
    plan_json_ = plan.plan_json;
  }

  void Take(const MemberEvent& event) {
    if (const auto* applied = std::get_if<StepApplied>(&event)) {
      const MutexLock lock(mutex_);
      steps_.push_back(applied->record.step());
    }
  }
  std::vector<int64_t> Steps() {
    const MutexLock lock(mutex_);
    return steps_;
  }

  // Into `generation`, from the seed or from the state of the generation before.
  MoveState MoveInto(int64_t generation, int64_t applied_step) const {
    MoveState move;
    move.start.set_generation(generation);
    move.start.set_move_generation(generation);
    move.start.set_applied_step(applied_step);
    wire::Member& member = *move.start.add_move_members();
    member.set_name("a");
    member.set_address(endpoint_->address());
    if (generation == 1) {
      move.start.set_initial(true);
    } else {
      move.start.mutable_held()->set_generation(generation - 1);
      move.start.mutable_held()->set_plan_json(plan_json_);
      move.start.mutable_held()->add_workers("a");
      move.held_plan_json = plan_json_;
    }
    move.prepared.set_generation(generation);
    move.prepared.set_plan_json(plan_json_);
    *move.prepared.add_members() = member;
    return move;
  }
  void Begin(int64_t generation, int64_t applied_step) {
    const StateMoved moved = trainer_->Move(MoveInto(generation, applied_step));
    ASSERT_TRUE(moved.status.ok()) << moved.status.ToString();
    trainer_->Adopt(generation);
  }

  const TemporaryFolder folder_;
  metrics::Registry registry_;
  Job job_;
  std::string plan_json_;
  Mutex mutex_;
  std::vector<int64_t> steps_ HEDDLE_GUARDED_BY(mutex_);
  std::unique_ptr<comm::Endpoint> endpoint_;
  std::unique_ptr<Trainer> trainer_;
};

// Those that heard the vote left the update out and counted the step: no gradients are needed.
TEST_F(TrainerTest, AStepThatTheVoteRefusedIsSettledWithoutItsUpdate) {
  Begin(1, 0);
  trainer_->Settle({.step = 1, .norm = std::numeric_limits<double>::quiet_NaN(), .skip = true});
  Begin(2, 1);
  const RunEnded ended = trainer_->Run({.generation = 2, .applied_step = 1});
  EXPECT_EQ(ended.how, RunEnded::How::kFinished) << ended.status.ToString();
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
}

TEST_F(TrainerTest, AStepThatIsNotTheNextOneIsNotSettled) {
  Begin(1, 0);
  for (const bool skip : {true, false}) {
    trainer_->Settle({.step = 2, .norm = 1, .skip = skip});
    const StateMoved moved = trainer_->Move(MoveInto(2, 2));
    EXPECT_THAT(moved.status.ToString(), HasSubstr("step 2 is to be")) << skip;
  }
}

// What its heartbeats tell.
TEST_F(TrainerTest, WhatItDoesIsCounted) {
  int64_t before = trainer_->progress();
  EXPECT_GT(before, 0) << "the profile";
  const auto more = [&] {
    return std::exchange(before, trainer_->progress()) < trainer_->progress();
  };
  EXPECT_TRUE(trainer_->Lower(1, plan_json_).ok());
  EXPECT_TRUE(more()) << "lowering";
  Begin(1, 0);
  EXPECT_TRUE(more()) << "a move";
  trainer_->Run({.generation = 1});
  EXPECT_TRUE(more()) << "steps";
  EXPECT_FALSE(more());
  EXPECT_FALSE(trainer_->waits());
}

}  // namespace
}  // namespace heddle::elastic
