#include "tests/engine_runtime/training.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "comm/communicator.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/stage_graph.h"
#include "engine/program/verify/verify.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/executor.h"

namespace heddle::runtime::testing {
namespace {

constexpr uint64_t kSeed = 3;
constexpr Duration kLongestTrial = std::chrono::seconds(60);

Status ReadRandomSample(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
  const uint64_t key = StreamKey(7, "sample");
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(Philox(key, static_cast<uint64_t>(sample), i)[0] % 97);
    targets[i] = (tokens[i] * 3 + 1) % 97;  // A rule that can be learnt: the loss must fall.
  }
  return Status::Ok();
}

/// Calls visit(index in a row-major tensor of `shape`) for each element of `box`, in its order.
template <typename Visit>
void ForEach(const Shape& shape, const Box& box, const Visit& visit) {
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t n = ElementCount(box.extent); n > 0; --n) {
    int64_t index = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      index = index * shape[d] + box.offset[d] + at[d];
    }
    visit(static_cast<size_t>(index));
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == box.extent[d];) {
      at[d] = 0;
    }
  }
}

std::vector<std::string> Transports(const TrainingOptions& options) {
  if (options.direct) {
    return {"placing", "tcp"};
  }
  return options.shm ? std::vector<std::string>() : std::vector<std::string>{"verbs", "tcp"};
}

// One worker of a run: what it is connected with, and what it trains.
class Worker {
 public:
  Worker(const WorkerPart& part, const TrainingOptions& options, const std::string& name)
      : graph_(*part.graph),
        program_(*part.program),
        options_(options) {
    auto endpoint =
        comm::Endpoint::Create({.config = {.worker = name, .job = "test", .secret = "secret"},
                                .open = Transports(options),
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
    if (device_ == nullptr) {
      return FailedPreconditionError("worker {} has no device", member_.name);
    }
    HEDDLE_ASSIGN_OR_RETURN(
        const auto group,
        endpoint_->Connect(
            {.generation = 1, .rank = program_.rank, .members = members, .peers = program_.peers},
            After(std::chrono::seconds(20))));
    ParameterState state(graph_, *device_);
    HEDDLE_RETURN_IF_ERROR(state.Hold(program_));
    HEDDLE_RETURN_IF_ERROR(state.Initialize(kSeed));
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
  int64_t device_sums_ = 0;
  struct Part {
    Box box;
    std::vector<std::byte> bytes;
  };
  std::map<graph::ParameterId, std::vector<Part>> masters_;

 private:
  Status RunSteps(comm::Communicator& group, ParameterState& state) {
    SharedTensors shared(*endpoint_, *device_);
    DeviceTensors direct(*endpoint_, *device_);
    if (options_.direct) {
      HEDDLE_RETURN_IF_ERROR(direct.Agree(group, program_.peers, /*tag=*/1, After(kLongestTrial)));
      options_.after_trial(program_.rank);
    }
    Executor executor({.graph = &graph_,
                       .program = &program_,
                       .state = &state,
                       .group = &group,
                       .shared = options_.slabs ? &shared : nullptr,
                       .direct = options_.direct ? &direct : nullptr,
                       .device = device_.get(),
                       .read_sample = ReadRandomSample,
                       .seed = kSeed,
                       .microbatches = options_.microbatches});
    for (int64_t step = 1; step <= options_.steps; ++step) {
      const Time begun = Now();
      HEDDLE_RETURN_IF_ERROR(
          executor.ComputeGradients(step, (step - 1) * options_.microbatches * 2));
      HEDDLE_ASSIGN_OR_RETURN(const VoteOutcome outcome, executor.Vote(step));
      executor.Apply(step, outcome.gradient_norm, 3e-3);
      losses_.push_back(outcome.loss);
      seconds_.push_back(Seconds(Now() - begun));
      device_sums_ += executor.figures().device_sums;
    }
    options_.after_steps(*device_);
    return Status::Ok();
  }

  Status ReadMasters(const ParameterState& state) {
    for (const graph::ParameterId id : state.parameters()) {
      for (const Box& box : state.KeptOf(id)) {
        Part& part = masters_[id].emplace_back();
        part.box = box;
        part.bytes.resize(
            static_cast<size_t>(ElementCount(box.extent) * SizeOf(graph_.master_dtype())));
        HEDDLE_RETURN_IF_ERROR(state.Read(id, program::StateRole::kMaster, box, part.bytes));
      }
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

/// Puts the masters of all workers together, each element from those that have it. Errors: kInternal
/// (holders of an element differ, or nobody has it).
Status Assemble(const graph::Graph& graph,
                const std::vector<std::unique_ptr<Worker>>& workers,
                Trained& trained) {
  const auto element = static_cast<size_t>(SizeOf(graph.master_dtype()));
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const graph::Parameter& parameter = graph.parameters[i];
    std::vector<std::byte>& whole = trained.masters[parameter.name];
    whole.resize(static_cast<size_t>(ElementCount(parameter.shape)) * element);
    std::vector<bool> known(whole.size() / element, false);
    bool alike = true;
    for (const auto& worker : workers) {
      const auto held = worker->masters_.find(static_cast<graph::ParameterId>(i));
      if (held == worker->masters_.end()) {
        continue;
      }
      for (const Worker::Part& part : held->second) {
        size_t next = 0;
        ForEach(parameter.shape, part.box, [&](size_t index) {
          std::byte* const to = whole.data() + index * element;
          const std::byte* const from = part.bytes.data() + element * next++;
          alike = alike && (!known[index] || std::memcmp(to, from, element) == 0);
          std::memcpy(to, from, element);
          known[index] = true;
        });
      }
    }
    if (!alike || std::ranges::count(known, false) > 0) {
      return InternalError("{}: {}", parameter.name,
                           alike ? "nobody has all of it" : "its holders differ");
    }
  }
  return Status::Ok();
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
  std::vector<graph::Graph> graphs;
  for (const program::Program& program : *programs) {
    auto own = program::MemberGraph(graph, plan, program.rank);
    EXPECT_TRUE(own.ok()) << own.status().ToString();
    graphs.push_back(*std::move(own));
  }
  std::vector<WorkerPart> parts;
  for (size_t rank = 0; rank < graphs.size(); ++rank) {
    parts.push_back({.graph = &graphs[rank], .program = &(*programs)[rank]});
  }
  return Train(parts, options);
}

Trained Train(const std::vector<WorkerPart>& parts, const TrainingOptions& options) {
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<comm::GroupMember> members;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    workers.push_back(std::make_unique<Worker>(parts[rank], options, fmt::format("w{}", rank)));
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
  Trained trained{.status = {}, .losses = workers[0]->losses_, .seconds = workers[0]->seconds_};
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (trained.status.ok()) {
      trained.status = statuses[rank];
    }
    trained.device_sums += workers[rank]->device_sums_;
    if (workers[rank]->device_ != nullptr) {
      options.look_at(*workers[rank]->device_);
    }
  }
  if (trained.status.ok()) {
    trained.status = Assemble(*parts[0].graph, workers, trained);
  }
  return trained;
}

}  // namespace heddle::runtime::testing
