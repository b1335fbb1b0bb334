/// \file
/// The price of every instruction against a second pricing of the same Programs, instruction by
/// instruction, with every term so large that it shows; and Programs that do not belong together.
#include <map>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "engine/program/lowering/lower.h"
#include "planner/predictor/simulator.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Code;
using program::Instruction;
using program::Program;

/// Two pipelines of two stages, and one of a single worker; rates and links all differ.
program::Plan ThreePipelines(int segments, program::Determinism determinism) {
  program::Plan plan;
  plan.determinism = determinism;
  plan.workers = {"w0", "w1", "w2", "w3", "w4"};
  plan.pipelines = {{.stages = {{.group = {2}, .first_segment = 0, .last_segment = 3},
                                {.group = {0}, .first_segment = 3, .last_segment = segments}},
                     .first_microbatch = 0,
                     .microbatches = 40},
                    {.stages = {{.group = {1}, .first_segment = 0, .last_segment = 1},
                                {.group = {4}, .first_segment = 1, .last_segment = segments}},
                     .first_microbatch = 40,
                     .microbatches = 9},
                    {.stages = {{.group = {3}, .first_segment = 0, .last_segment = segments}},
                     .first_microbatch = 49,
                     .microbatches = 3}};
  return plan;
}

ClusterProfile UnlikeCluster() {
  ClusterProfile cluster = ClusterOf({1, 0.9, 0.8, 0.7, 0.6});
  for (size_t rank = 0; rank < 5; ++rank) {
    program::WorkerProfile& worker = cluster.workers[rank];
    const double factor = 1 + static_cast<double>(rank);
    worker.instruction_seconds = 1e-4 * factor;
    worker.seconds = {{"copy", 1e-8 * factor}, {"fold", 3e-8 * factor}, {"update", 7e-8 * factor}};
  }
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      cluster.links.At(from, to).latency_seconds = 1e-3 * (1 + from);
      cluster.links.At(from, to).bytes_per_second = 1e6 * (1 + to + 0.1 * from);
    }
  }
  return cluster;
}

int64_t BytesOf(const graph::Graph& graph, graph::ParameterId parameter) {
  return 4 * ElementCount(graph.parameter(parameter).shape);
}

/// Seconds of the worker itself.
double PriceOf(const graph::Graph& graph,
               const Program& program,
               const Instruction& instruction,
               const program::WorkerProfile& profile) {
  const auto bytes = [&](program::SlotId slot) {
    return static_cast<double>(program.slots[static_cast<size_t>(slot)].type.bytes());
  };
  double read = 0;
  for (const program::VoteShare::Norm& norm : program.vote.norms) {
    read += static_cast<double>(BytesOf(graph, norm.parameter));
  }
  const double fixed = profile.instruction_seconds;
  switch (instruction.code) {
    case Code::kLoad:
      return fixed + profile.seconds.at("copy") * bytes(instruction.outputs[0]);
    case Code::kRun:
      return fixed + profile.Seconds(graph, graph.node(instruction.node));
    case Code::kFold:
      return fixed + profile.seconds.at("fold") * bytes(instruction.inputs[0]);
    case Code::kUpdate:
      return fixed + profile.seconds.at("update") *
                         static_cast<double>(BytesOf(graph, instruction.parameter));
    case Code::kFree:
      return 0;
    case Code::kSend:
    case Code::kRecv:
    case Code::kReduce:
    case Code::kExchange:
    case Code::kGather:
    case Code::kAwait:
      return fixed;
    case Code::kVote:
      return fixed + profile.seconds.at("copy") * read;
  }
  return 0;
}

/// One action an instruction, numbers of messages and reductions in order of appearance.
Schedule ScheduleOf(const graph::Graph& graph,
                    const std::vector<Program>& programs,
                    const ClusterProfile& cluster) {
  Schedule schedule;
  std::map<std::tuple<int, int, uint64_t>, int> messages;
  std::map<graph::ParameterId, int> reductions;
  int64_t vote_bytes = 0;
  for (const Program& program : programs) {
    schedule.workers.emplace_back();
    int64_t bytes_together = 0;
    const program::WorkerProfile& profile = cluster.workers[static_cast<size_t>(program.rank)];
    for (const Instruction& instruction : program.instructions) {
      Action action{.seconds = PriceOf(graph, program, instruction, profile)};
      if (instruction.code == Code::kSend || instruction.code == Code::kRecv) {
        const bool send = instruction.code == Code::kSend;
        action.kind = send ? Action::Kind::kSend : Action::Kind::kRecv;
        action.peer = instruction.peer;
        const auto key = send ? std::tuple(program.rank, instruction.peer, instruction.tag)
                              : std::tuple(instruction.peer, program.rank, instruction.tag);
        action.message = messages.emplace(key, messages.size()).first->second;
        action.bytes =
            send ? program.slots[static_cast<size_t>(instruction.inputs[0])].type.bytes() : 0;
      } else if (instruction.code == Code::kReduce && instruction.group.size() > 1) {
        bytes_together += BytesOf(graph, instruction.parameter);
        if (instruction.part + 1 < instruction.parts) {  // The last of a collective begins it.
          schedule.workers.back().push_back(action);
          continue;
        }
        const int64_t bytes = std::exchange(bytes_together, 0);
        const auto found = reductions.emplace(instruction.parameter, reductions.size());
        action.kind = Action::Kind::kCollect;
        action.collective = found.first->second;
        if (found.second) {
          std::vector<int> sums;
          for (const auto& nodes : instruction.contributions) {
            sums.push_back(static_cast<int>(nodes.size()));
          }
          schedule.collectives.push_back(
              {.members = instruction.group,
               .seconds =
                   sums.empty()
                       ? comm::AllReduceSeconds(cluster.links, instruction.group, bytes)
                       : comm::ReduceTreeSeconds(cluster.links, instruction.group, sums, bytes)});
        }
      } else if (instruction.code == Code::kVote) {
        action.kind = Action::Kind::kVote;
      }
      schedule.workers.back().push_back(action);
    }
    // A head, and a number and a double for every norm and loss.
    const auto entries = program.vote.norms.size() + program.vote.losses.size();
    vote_bytes = std::max(vote_bytes, 64 + 16 * static_cast<int64_t>(entries));
  }
  schedule.messages = static_cast<int>(messages.size());
  schedule.vote_seconds =
      programs.size() > 1 ? comm::AllGatherBytesSeconds(cluster.links, vote_bytes) : 0;
  return schedule;
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-9) << i;
  }
}

TEST(InstructionsTest, AStepTakesWhatItsInstructionsTakeOneByOne) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const ClusterProfile cluster = UnlikeCluster();
  for (const auto determinism : {program::Determinism::kExact, program::Determinism::kRelaxed}) {
    const program::Plan plan = ThreePipelines(static_cast<int>(graph.segments.size()), determinism);
    const auto programs = program::LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    const Schedule schedule = ScheduleOf(graph, *programs, cluster);
    EXPECT_GT(schedule.vote_seconds, comm::AllGatherBytesSeconds(cluster.links, 64));
    const auto expected = RunSchedule(schedule, cluster.links);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    for (const bool timeline : {false, true}) {
      const auto found = Simulate(graph, *programs, cluster, {.timeline = timeline});
      ASSERT_TRUE(found.ok()) << found.status().ToString();
      EXPECT_NEAR(found->step_seconds, expected->step_seconds, 1e-9);
      EXPECT_NEAR(found->exposed_reduction_seconds, expected->exposed_reduction_seconds, 1e-9);
      EXPECT_GT(found->exposed_reduction_seconds, 0);
      ExpectNear(found->busy, expected->busy);
      ExpectNear(found->waiting, expected->waiting);
      ExpectNear(found->finish, expected->finish);
    }
  }
}

TEST(InstructionsTest, TheTimelineHasEveryInstructionOnceWithItsPrice) {
  const graph::Graph graph = LlamaGraph({.layers = 2});
  const ClusterProfile cluster = UnlikeCluster();
  const auto programs = program::LowerAll(
      graph, ThreePipelines(static_cast<int>(graph.segments.size()), program::Determinism::kExact));
  ASSERT_TRUE(programs.ok());
  const auto simulation = Simulate(graph, *programs, cluster, {.timeline = true});
  ASSERT_TRUE(simulation.ok());
  std::vector<std::vector<int>> seen;
  for (const Program& program : *programs) {
    seen.emplace_back(program.instructions.size(), 0);
  }
  for (const TimelineEntry& entry : simulation->timeline) {
    const auto rank = static_cast<size_t>(entry.worker);
    ASSERT_GE(entry.instruction, 0);
    const Instruction& instruction =
        (*programs)[rank].instructions.at(static_cast<size_t>(entry.instruction));
    ++seen[rank][static_cast<size_t>(entry.instruction)];
    const double price = PriceOf(graph, (*programs)[rank], instruction, cluster.workers[rank]);
    if (instruction.code == Code::kRecv || instruction.code == Code::kVote) {
      EXPECT_GE(entry.end - entry.start, price - 1e-9);  // They wait, too.
    } else {
      EXPECT_NEAR(entry.end - entry.start, price, 1e-9);
    }
  }
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    for (size_t i = 0; i < seen[rank].size(); ++i) {
      const Instruction& instruction = (*programs)[rank].instructions[i];
      EXPECT_EQ(seen[rank][i], instruction.code == Code::kFree ? 0 : 1) << rank << " " << i;
    }
  }
}

TEST(InstructionsTest, AWorkerAloneVotesAtOnceAndReducesNothing) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  ClusterProfile cluster;
  cluster.workers = {UnlikeCluster().workers[0]};
  cluster.links = comm::LinkTable(1);
  const auto programs = program::LowerAll(
      graph, program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), 3));
  ASSERT_TRUE(programs.ok());
  double sum = 0;
  for (const Instruction& instruction : (*programs)[0].instructions) {
    sum += PriceOf(graph, (*programs)[0], instruction, cluster.workers[0]);
  }
  const auto simulation = Simulate(graph, *programs, cluster);
  ASSERT_TRUE(simulation.ok());
  EXPECT_NEAR(simulation->step_seconds, sum, 1e-9);
  EXPECT_EQ(simulation->exposed_reduction_seconds, 0);
}

TEST(InstructionsTest, ProgramsThatDoNotBelongTogetherAreErrors) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  const ClusterProfile three = ClusterOf({1, 1, 1});
  program::Plan plan;
  plan.workers = {"w0", "w1"};
  plan.pipelines = {{.stages = {{.group = {0}, .first_segment = 0, .last_segment = 2},
                                {.group = {1}, .first_segment = 2, .last_segment = 4}},
                     .microbatches = 2}};
  const auto programs = program::LowerAll(graph, plan);
  ASSERT_TRUE(programs.ok());
  const ClusterProfile two = ClusterOf({1, 1});
  ASSERT_TRUE(Simulate(graph, *programs, two).ok());
  for (const auto& [given, cluster, message] :
       std::vector<std::tuple<std::vector<Program>, ClusterProfile, std::string>>{
           {*programs, three, "2 programs for 3 workers"},
           {{programs->front()}, two, "1 programs for 2 workers"},
           {{}, two, "0 programs for 2 workers"},
           {{}, ClusterProfile{}, "0 programs for 0 workers"}}) {
    const Status status = Simulate(graph, given, cluster).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_EQ(status.message(), message);
  }
  ClusterProfile broken = two;
  broken.workers[1].flops_per_second = -1;
  EXPECT_EQ(Simulate(graph, *programs, broken).status().code(), StatusCode::kInvalidArgument);
  for (const int peer : {-1, 2}) {
    for (const Code code : {Code::kSend, Code::kRecv}) {
      std::vector<Program> misdirected = *programs;
      auto& list = misdirected[0].instructions;
      const auto place = std::find_if(list.begin(), list.end(),
                                      [&](const Instruction& i) { return i.code == code; });
      ASSERT_NE(place, list.end());
      place->peer = peer;
      const Status status = Simulate(graph, misdirected, two).status();
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      EXPECT_EQ(status.message(),
                fmt::format("worker 0 instruction {}: no worker {}", place - list.begin(), peer));
    }
  }
}

}  // namespace
}  // namespace heddle::planner
