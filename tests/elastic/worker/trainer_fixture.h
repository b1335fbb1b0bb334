/// \file
/// The fixture of a worker's trainer alone, and the commands that its member would give it.
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "base/system/file.h"
#include "elastic/planning/job_planner.h"
#include "elastic/service/job_policy.h"
#include "elastic/worker/trainer/trainer.h"
#include "tests/support/device/fake_device.h"

namespace heddle::elastic {

inline constexpr const char* kJob = R"(
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

/// The time that the trainer waits for the coordinator: far less than other workers may need for
/// their part of a move.
inline constexpr Duration kCoordinatorWait = std::chrono::milliseconds(100);

/// Opens a fake device if HEDDLE_TEST_DEVICE is "fake", else the processor.
inline Result<std::unique_ptr<runtime::Device>> OpenDevice(const runtime::DeviceOptions& options) {
  const char* const name = std::getenv("HEDDLE_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  if (name != nullptr && std::string_view(name) == "fake") {
    return std::unique_ptr<runtime::Device>(
        std::make_unique<runtime::testing::FakeDevice>(runtime::testing::FakeOptions{}));
  }
  return runtime::OpenDevice("cpu", options);
}

/// A test of the trainer of the only worker of a job of three steps.
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
    config_ = *config;
    job_ = MakeJob(*config, folder_.path());
    job_.policy.coordinator_wait = kCoordinatorWait;
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
                                    .post = [this](const MemberEvent& event) { Take(event); },
                                    .open_device = OpenDevice});
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
    } else if (const auto* saved = std::get_if<Saved>(&event)) {
      const MutexLock lock(mutex_);
      saves_.push_back(saved->part);
      changed_.NotifyAll();
    }
  }
  std::vector<int64_t> Steps() {
    const MutexLock lock(mutex_);
    return steps_;
  }

  // Waits until `count` parts of checkpoints were reported; returns all that were.
  std::vector<wire::CheckpointPart> Saves(size_t count) {
    const MutexLock lock(mutex_);
    for (const Deadline deadline = After(std::chrono::seconds(60));
         saves_.size() < count && Now() < deadline;) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return saves_;
  }

  // The move into `generation`: generation 1 begins from the seed, others from the state of the
  // generation before.
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
  job::JobConfig config_;
  Job job_;
  std::string plan_json_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<int64_t> steps_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<wire::CheckpointPart> saves_ HEDDLE_GUARDED_BY(mutex_);
  std::unique_ptr<comm::Endpoint> endpoint_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace heddle::elastic
