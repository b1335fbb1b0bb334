/// \file
/// The simulator against times computed by hand and against the law of equal stages.
#include "planner/predictor/simulator.h"

#include <gtest/gtest.h>

#include "engine/graph/operator.h"
#include "engine/program/memory.h"
#include "planner/predictor/estimate.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Code;
using program::Instruction;
using program::Program;

/// An operator whose cost is an attribute.
class FixedCost final : public graph::Operator {
 public:
  std::string_view name() const override { return "fixed_cost"; }
  Result<std::vector<graph::TensorType>> Infer(std::span<const graph::TensorType> inputs,
                                               const graph::Attributes&) const override {
    return std::vector<graph::TensorType>{inputs.front()};
  }
  graph::Cost CostOf(std::span<const graph::TensorType>,
                     std::span<const graph::TensorType>,
                     const graph::Attributes& attributes) const override {
    return {.flops = attributes.Float("flops"), .bytes = 0};
  }
  std::vector<graph::ShardingRule> ShardingRules(std::span<const graph::TensorType>,
                                                 std::span<const graph::TensorType>,
                                                 const graph::Attributes&) const override {
    return {};
  }
};

/// Node 2j is stage j's forward, node 2j + 1 its backward; one flop a second.
graph::Graph StageGraph(const FixedCost& op, const std::vector<std::pair<double, double>>& stages) {
  graph::Graph graph;
  graph.tensors.push_back(
      {.name = "x", .type = {.dtype = DType::kF32, .shape = {2}}, .kind = {}, .parameter = -1});
  for (const auto& stage : stages) {
    for (const double seconds : {stage.first, stage.second}) {
      graph::Node node;
      node.op = &op;
      node.attributes.Set("flops", seconds);
      node.inputs = {0};
      node.outputs = {0};
      graph.nodes.push_back(node);
    }
  }
  return graph;
}

/// 1F1B of equal messages of 8 bytes, written out here independently of the lowering.
std::vector<Program> PipelinePrograms(int stages, int microbatches) {
  std::vector<Program> programs(static_cast<size_t>(stages));
  for (int j = 0; j < stages; ++j) {
    Program& program = programs[static_cast<size_t>(j)];
    program.rank = j;
    program.workers = stages;
    program.slots.push_back(
        {.tensor = 0, .microbatch = 0, .type = {.dtype = DType::kF32, .shape = {2}}});
    const auto add = [&](Code code, int peer, int microbatch, bool backward) {
      Instruction instruction;
      instruction.code = code;
      instruction.node = 2 * j + (backward ? 1 : 0);
      instruction.microbatch = microbatch;
      instruction.peer = peer;
      instruction.tag = static_cast<uint64_t>(2 * microbatch + (backward ? 1 : 0));
      instruction.inputs = {0};
      instruction.outputs = {0};
      program.instructions.push_back(instruction);
    };
    const auto run = [&](int i, bool backward) {
      const int from = backward ? j + 1 : j - 1;
      const int to = backward ? j - 1 : j + 1;
      if (from >= 0 && from < stages) {
        add(Code::kRecv, from, i, backward);
      }
      add(Code::kRun, -1, i, backward);
      if (to >= 0 && to < stages) {
        add(Code::kSend, to, i, backward);
      }
    };
    const int ahead = std::min(stages - 1 - j, microbatches);
    for (int i = 0; i < ahead; ++i) {
      run(i, false);
    }
    for (int i = 0; i < microbatches; ++i) {
      if (i + ahead < microbatches) {
        run(i + ahead, false);
      }
      run(i, true);
    }
  }
  return programs;
}

ClusterProfile UnitCluster(int workers, comm::Link link) {
  ClusterProfile cluster;
  cluster.links = comm::LinkTable(workers);
  for (int i = 0; i < workers; ++i) {
    program::WorkerProfile profile;
    profile.worker = fmt::format("w{}", i);
    profile.flops_per_second = 1;
    cluster.workers.push_back(profile);
    for (int j = 0; j < workers; ++j) {
      cluster.links.At(i, j) = link;
    }
  }
  return cluster;
}

const comm::Link kFree{.latency_seconds = 0, .bytes_per_second = 1e300, .transport = "shm"};

double StepSeconds(const std::vector<std::pair<double, double>>& stages,
                   int microbatches,
                   const comm::Link& link) {
  const FixedCost op;
  const graph::Graph graph = StageGraph(op, stages);
  const int count = static_cast<int>(stages.size());
  const Result<Simulation> simulation =
      Simulate(graph, PipelinePrograms(count, microbatches), UnitCluster(count, link));
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  return simulation.ok() ? simulation->step_seconds : -1;
}

TEST(SimulatorTest, EqualStagesWithoutCommunicationFollowTheBubbleLaw) {
  for (const int stages : {1, 2, 3, 5, 8}) {
    for (const int microbatches : {1, 2, 3, 7, 16}) {
      // Powers of two add without rounding: exact equality is meant.
      EXPECT_EQ(StepSeconds(std::vector<std::pair<double, double>>(static_cast<size_t>(stages),
                                                                   {0.25, 0.5}),
                            microbatches, kFree),
                (microbatches + stages - 1) * 0.75)
          << stages << " stages, " << microbatches << " microbatches";
    }
  }
}

TEST(SimulatorTest, UnlikeStagesTakeTheTimeComputedByHand) {
  // Worker 1: F0 1-3, B0 3-6, F1 6-8, B1 8-11; worker 0: F0 0-1, F1 1-2, B0 6-8, B1 11-13.
  EXPECT_EQ(StepSeconds({{1, 2}, {2, 3}}, 2, kFree), 13);
}

TEST(SimulatorTest, LatencyAndBandwidthDelayMessages) {
  const comm::Link late{.latency_seconds = 0.5, .bytes_per_second = 1e300, .transport = "tcp"};
  EXPECT_EQ(StepSeconds({{1, 2}, {2, 3}}, 2, late), 14);
  const comm::Link slow{.latency_seconds = 0, .bytes_per_second = 16, .transport = "tcp"};
  EXPECT_EQ(StepSeconds({{1, 2}, {2, 3}}, 2, slow), 14);
}

TEST(SimulatorTest, TheOutgoingSideOfAWorkerCarriesOneMessageAtATime) {
  // Worker 0 makes two messages at once (8 bytes at 1 byte a second): they arrive after 8 and 16
  // seconds.
  Schedule schedule;
  schedule.messages = 2;
  schedule.workers.resize(3);
  for (const int peer : {1, 2}) {
    schedule.workers[0].push_back(
        {.kind = Action::Kind::kSend, .peer = peer, .message = peer - 1, .bytes = 8});
    schedule.workers[static_cast<size_t>(peer)].push_back(
        {.kind = Action::Kind::kRecv, .message = peer - 1});
  }
  const comm::Link link{.latency_seconds = 0, .bytes_per_second = 1, .transport = "tcp"};
  const auto times = RunSchedule(schedule, UnitCluster(3, link).links);
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->finish, (std::vector<double>{0, 8, 16}));
  EXPECT_EQ(times->waiting, (std::vector<double>{0, 8, 16}));
}

TEST(SimulatorTest, ReductionsOverlapWithComputingAndTheVoteWaitsForThem) {
  Schedule schedule;
  schedule.workers.resize(2);
  schedule.collectives = {{.members = {0, 1}, .seconds = 4}};
  schedule.vote_seconds = 0.5;
  for (const int rank : {0, 1}) {
    auto& actions = schedule.workers[static_cast<size_t>(rank)];
    actions.push_back({.kind = Action::Kind::kCollect, .seconds = 1.0 + rank, .collective = 0});
    actions.push_back({.kind = Action::Kind::kVote, .seconds = 3});
    actions.push_back({.kind = Action::Kind::kCompute, .seconds = 0.25});
  }
  // Issued at 1 and 2; runs 2-6; computing ends at 4 and 5; vote 6-6.5; update to 6.75.
  const auto times = RunSchedule(schedule, UnitCluster(2, kFree).links);
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->step_seconds, 6.75);
  EXPECT_EQ(times->exposed_reduction_seconds, 1);
  EXPECT_EQ(times->busy, (std::vector<double>{4.25, 5.25}));
}

TEST(SimulatorTest, ReductionsInUnlikeOrdersAreReported) {
  Schedule schedule;
  schedule.workers.resize(2);
  schedule.collectives = {{.members = {0, 1}, .seconds = 1}, {.members = {0, 1}, .seconds = 1}};
  for (const int rank : {0, 1}) {
    auto& actions = schedule.workers[static_cast<size_t>(rank)];
    actions.push_back({.kind = Action::Kind::kCollect, .collective = rank});
    actions.push_back({.kind = Action::Kind::kCollect, .collective = 1 - rank});
    actions.push_back({.kind = Action::Kind::kVote});
  }
  EXPECT_EQ(RunSchedule(schedule, UnitCluster(2, kFree).links).status().code(),
            StatusCode::kInternal);
}

TEST(SimulatorTest, AReceiveWithoutASendIsReported) {
  const FixedCost op;
  const graph::Graph graph = StageGraph(op, {{1, 1}, {1, 1}});
  std::vector<Program> programs = PipelinePrograms(2, 2);
  std::erase_if(programs[0].instructions,
                [](const Instruction& i) { return i.code == Code::kSend && i.microbatch == 1; });
  EXPECT_EQ(Simulate(graph, programs, UnitCluster(2, kFree)).status().code(),
            StatusCode::kInternal);
}

TEST(SimulatorTest, TheTimelineCoversTheBusyTime) {
  const FixedCost op;
  const graph::Graph graph = StageGraph(op, {{1, 2}, {2, 3}});
  const auto simulation =
      Simulate(graph, PipelinePrograms(2, 3), UnitCluster(2, kFree), {.timeline = true});
  ASSERT_TRUE(simulation.ok());
  std::vector<double> covered(2, 0);
  for (const TimelineEntry& entry : simulation->timeline) {
    EXPECT_LE(entry.start, entry.end);
    covered[static_cast<size_t>(entry.worker)] += entry.end - entry.start;
  }
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_NEAR(covered[rank], simulation->busy[rank] + simulation->waiting[rank], 1e-9);
  }
}

TEST(SimulatorTest, MemoryIsStateAndLiveValues) {
  const graph::Graph graph = LlamaGraph({});
  const program::Plan plan =
      program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 4);
  const auto simulation = ScorePlan(graph, plan, ClusterOf({1}));
  ASSERT_TRUE(simulation.ok());
  int64_t parameters = 0;
  for (const graph::Parameter& parameter : graph.parameters) {
    parameters += ElementCount(parameter.shape);
  }
  EXPECT_EQ(simulation->state_bytes[0], 12 * parameters);
  EXPECT_GT(simulation->peak_bytes[0], simulation->state_bytes[0] + 4 * parameters);
}

TEST(SimulatorTest, PlansAreScoredByTheNamesOfTheirWorkers) {
  const graph::Graph graph = LlamaGraph({});
  const ClusterProfile cluster = ClusterOf({1, 0.5, 0.25});
  const int segments = static_cast<int>(graph.segments.size());
  const auto fast = ScorePlan(graph, program::SingleWorkerPlan("w0", segments, 4), cluster);
  const auto slow = ScorePlan(graph, program::SingleWorkerPlan("w2", segments, 4), cluster);
  ASSERT_TRUE(fast.ok() && slow.ok());
  EXPECT_NEAR(slow->step_seconds / fast->step_seconds, 4, 1e-9);
  EXPECT_EQ(
      ScorePlan(graph, program::SingleWorkerPlan("nobody", segments, 4), cluster).status().code(),
      StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::planner
