// What a coordinator does with a plan before it sends it, timed part by part.
// Usage: programs_bench LAYERS PIPELINES STAGES MICROBATCHES exact|relaxed REPETITIONS
// Prints one line of JSON a repetition, in seconds: {"lower", "hash", "verify", "take", "memory"};
// "take" is hashing and verifying side by side, as the coordinator does, and "memory" predicting
// what the workers' processes take.
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "elastic/planning/plan_programs.h"
#include "elastic/planning/process_memory.h"
#include "engine/graph/models/model.h"
#include "engine/job/job.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"

namespace heddle {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Pipelines of equal cuts, with equally many microbatches.
program::Plan EqualPipelines(int segments, int pipelines, int stages, int microbatches) {
  program::Plan plan;
  plan.generation = 1;
  for (int p = 0; p < pipelines; ++p) {
    program::Pipeline pipeline{.first_microbatch = p * microbatches, .microbatches = microbatches};
    for (int s = 0; s < stages; ++s) {
      pipeline.stages.push_back({.group = {p * stages + s},
                                 .first_segment = segments * s / stages,
                                 .last_segment = segments * (s + 1) / stages});
      plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

// The plan's workers, all alike, on one host.
planner::ClusterProfile Cluster(const program::Plan& plan) {
  planner::ClusterProfile cluster;
  for (const std::string& worker : plan.workers) {
    program::WorkerProfile profile;
    profile.worker = worker;
    profile.process_bytes = 1;
    cluster.workers.push_back(std::move(profile));
  }
  const int count = static_cast<int>(plan.workers.size());
  cluster.links = comm::LinkTable(count);
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      cluster.links.At(from, to).transport = "shm";
    }
  }
  return cluster;
}

Status Measure(const graph::Graph& graph,
               const program::Plan& plan,
               const planner::ClusterProfile& cluster) {
  const double begun = Now();
  HEDDLE_ASSIGN_OR_RETURN(const auto programs, program::LowerAll(graph, plan));
  const double lowered = Now();
  uint64_t hashes = 0;
  for (const program::Program& program : programs) {
    hashes ^= program::ProgramHash(program, graph);
  }
  const double hashed = Now();
  HEDDLE_RETURN_IF_ERROR(program::Verify(graph, plan, programs));
  const double verified = Now();
  elastic::PlanOutcome outcome;
  HEDDLE_RETURN_IF_ERROR(elastic::TakePrograms(graph, plan, programs, outcome));
  const double taken = Now();
  for (const uint64_t hash : outcome.program_hashes) {
    hashes ^= hash;
  }
  if (hashes != 0) {
    return InternalError("the hashes differ from one call to the next");
  }
  const std::vector<int64_t> predicted =
      elastic::ProcessBytes(job::JobConfig(), graph, plan, programs, cluster);
  if (predicted.size() != programs.size()) {
    return InternalError("no memory is predicted for {} workers", programs.size());
  }
  fmt::print("{{\"lower\": {}, \"hash\": {}, \"verify\": {}, \"take\": {}, \"memory\": {}}}\n",
             lowered - begun, hashed - lowered, verified - hashed, taken - verified, Now() - taken);
  return Status::Ok();
}

Status Run(int layers, int pipelines, int stages, int microbatches, bool exact, int repetitions) {
  HEDDLE_ASSIGN_OR_RETURN(
      const graph::Graph graph,
      graph::BuildTrainingGraph(
          {.hidden_size = 64, .intermediate_size = 128, .num_hidden_layers = layers},
          {.microbatch_size = 1, .sequence_length = 16}));
  program::Plan plan =
      EqualPipelines(static_cast<int>(graph.segments.size()), pipelines, stages, microbatches);
  plan.determinism = exact ? program::Determinism::kExact : program::Determinism::kRelaxed;
  const planner::ClusterProfile cluster = Cluster(plan);
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    HEDDLE_RETURN_IF_ERROR(Measure(graph, plan, cluster));
  }
  return Status::Ok();
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: {} LAYERS PIPELINES STAGES MICROBATCHES exact|relaxed REPETITIONS\n",
               argv[0]);
    return 2;
  }
  const heddle::Status status =
      heddle::Run(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                  std::string_view(argv[5]) == "exact", std::atoi(argv[6]));
  if (!status.ok()) {
    fmt::print(stderr, "programs_bench: {}\n", status.ToString());
  }
  return status.ok() ? 0 : 1;
}
