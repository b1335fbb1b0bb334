#include "tests/engine_runtime/training.h"

#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "comm/communicator.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/executor.h"

namespace heddle::runtime::testing {
namespace {

constexpr uint64_t kSeed = 3;

Status ReadRandomSample(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
  const uint64_t key = StreamKey(7, "sample");
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(Philox(key, static_cast<uint64_t>(sample), i)[0] % 97);
    targets[i] = (tokens[i] * 3 + 1) % 97;  // A rule that can be learnt: the loss must fall.
  }
  return Status::Ok();
}

// One worker of a run: what it is connected with, and what it trains.
class Worker {
 public:
  Worker(const graph::Graph& graph,
         const program::Program& program,
         const TrainingOptions& options,
         const std::string& name)
      : graph_(graph),
        program_(program),
        options_(options) {
    auto endpoint =
        comm::Endpoint::Create({.config = {.worker = name, .job = "test", .secret = "secret"},
                                .open = options.shm ? std::vector<std::string>()
                                                    : std::vector<std::string>{"verbs", "tcp"},
                                .metrics = &registry_});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    endpoint_ = *std::move(endpoint);
    member_ = {.name = name, .address = endpoint_->address()};
  }

  const comm::GroupMember& member() const { return member_; }

  // On a thread of its own.
  Status Run(const std::vector<comm::GroupMember>& members) {
    SetThreads(1);
    device_ = options_.make_device(program_.rank);
    HEDDLE_ASSIGN_OR_RETURN(
        const auto group,
        endpoint_->Connect(
            {.generation = 1, .rank = program_.rank, .members = members, .peers = program_.peers},
            After(std::chrono::seconds(20))));
    ParameterState state(graph_, *device_);
    state.Hold(program_.parameters);
    state.Initialize(kSeed);
    Status status = RunSteps(*group, state);
    if (status.ok()) {
      status = ReadMasters(state);
    }
    if (!status.ok()) {
      group->Abort(status);
    }
    return status;
  }

  std::unique_ptr<Device> device_;
  std::vector<double> losses_;
  std::vector<double> seconds_;
  std::map<std::string, std::vector<std::byte>> masters_;

 private:
  Status RunSteps(comm::Communicator& group, ParameterState& state) {
    SharedTensors shared(*endpoint_);
    Executor executor({.graph = &graph_,
                       .program = &program_,
                       .state = &state,
                       .group = &group,
                       .shared = options_.slabs ? &shared : nullptr,
                       .device = device_.get(),
                       .read_sample = ReadRandomSample,
                       .seed = kSeed,
                       .microbatches = kMicrobatches});
    for (int64_t step = 1; step <= options_.steps; ++step) {
      const Time begun = Now();
      HEDDLE_RETURN_IF_ERROR(executor.ComputeGradients(step, (step - 1) * kMicrobatches * 2));
      HEDDLE_ASSIGN_OR_RETURN(const VoteOutcome outcome, executor.Vote(step));
      executor.Apply(step, outcome.gradient_norm, 3e-3);
      losses_.push_back(outcome.loss);
      seconds_.push_back(Seconds(Now() - begun));
    }
    return Status::Ok();
  }

  Status ReadMasters(const ParameterState& state) {
    for (const graph::ParameterId id : state.parameters()) {
      const graph::Parameter& parameter = graph_.parameter(id);
      std::vector<std::byte>& bytes = masters_[parameter.name];
      bytes.resize(
          static_cast<size_t>(ElementCount(parameter.shape) * SizeOf(graph_.master_dtype())));
      HEDDLE_RETURN_IF_ERROR(
          state.Read(id, program::StateRole::kMaster, WholeBox(parameter.shape), bytes));
    }
    return Status::Ok();
  }

  const graph::Graph& graph_;
  const program::Program& program_;
  const TrainingOptions& options_;
  metrics::Registry registry_;
  std::unique_ptr<comm::Endpoint> endpoint_;
  comm::GroupMember member_;
};

program::Plan MakePlan(std::vector<program::Pipeline> pipelines, int workers) {
  program::Plan plan;
  plan.generation = 1;
  for (int i = 0; i < workers; ++i) {
    plan.workers.push_back(fmt::format("w{}", i));
  }
  plan.pipelines = std::move(pipelines);
  return plan;
}

}  // namespace

graph::Graph SmallModel(graph::ModelFamily family,
                        DType compute,
                        double dropout,
                        int64_t sequence_length) {
  const graph::ModelConfig config{
      .family = family,
      .vocab_size = 97,
      .hidden_size = 32,
      .intermediate_size = 48,
      .num_hidden_layers = 3,
      .num_attention_heads = 4,
      .num_key_value_heads = family == graph::ModelFamily::kLlama ? 2 : 4,
      .max_position_embeddings = sequence_length,
      .tie_word_embeddings = true,
      .dropout = dropout};
  const auto graph = graph::BuildTrainingGraph(
      config, {.microbatch_size = 2,
               .sequence_length = sequence_length,
               .compute = compute,
               .loss_scale = 1.0 / static_cast<double>(kMicrobatches * 2 * sequence_length),
               .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *graph;
}

std::vector<std::pair<std::string, program::Plan>> UnlikePlans() {
  using program::Stage;
  return {
      {"two pipelines of unlike depth",
       MakePlan({{.stages = {Stage{.group = {0}, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 0,
                  .microbatches = 1},
                 {.stages = {Stage{.group = {2}, .first_segment = 0, .last_segment = 3},
                             Stage{.group = {1}, .first_segment = 3, .last_segment = 8}},
                  .first_microbatch = 1,
                  .microbatches = 5}},
                3)},
      {"four stages cut inside layers",
       MakePlan({{.stages = {Stage{.group = {3}, .first_segment = 0, .last_segment = 2, .ahead = 1},
                             Stage{.group = {1}, .first_segment = 2, .last_segment = 3},
                             Stage{.group = {2}, .first_segment = 3, .last_segment = 6},
                             Stage{.group = {0}, .first_segment = 6, .last_segment = 8}},
                  .first_microbatch = 0,
                  .microbatches = 6}},
                4)},
      {"three pipelines, one worker idle, one recomputes",
       MakePlan({{.stages = {Stage{
                      .group = {0}, .first_segment = 0, .last_segment = 8, .recompute = true}},
                  .first_microbatch = 0,
                  .microbatches = 3},
                 {.stages = {Stage{.group = {1}, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 3,
                  .microbatches = 2},
                 {.stages = {Stage{.group = {3}, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 5,
                  .microbatches = 1}},
                4)},
  };
}

Trained Train(const graph::Graph& graph,
              const program::Plan& plan,
              const TrainingOptions& options) {
  const auto programs = program::LowerAll(graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  const Status verified = program::Verify(graph, plan, *programs);
  EXPECT_TRUE(verified.ok()) << verified.ToString();
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<comm::GroupMember> members;
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    workers.push_back(
        std::make_unique<Worker>(graph, (*programs)[rank], options, plan.workers[rank]));
    members.push_back(workers.back()->member());
  }
  std::vector<Status> statuses(workers.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = workers[rank]->Run(members); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Trained trained{
      .status = {}, .losses = workers[0]->losses_, .seconds = workers[0]->seconds_, .masters = {}};
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (trained.status.ok()) {
      trained.status = statuses[rank];
    }
    options.look_at(*workers[rank]->device_);
    for (const auto& [name, bytes] : workers[rank]->masters_) {
      const auto [entry, inserted] = trained.masters.emplace(name, bytes);
      EXPECT_TRUE(inserted || entry->second == bytes) << "holders of " << name << " differ";
    }
  }
  return trained;
}

}  // namespace heddle::runtime::testing
