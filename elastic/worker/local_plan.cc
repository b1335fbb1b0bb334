#include "elastic/worker/local_plan.h"

#include <thread>

#include "elastic/service/measurement.h"
#include "elastic/worker/measure/link_probe.h"
#include "engine/job/job.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/profiler.h"

namespace heddle::elastic {
namespace {

Result<Candidate> MeasureWorker(const job::WorkerSection& worker,
                                const job::CommSection& section,
                                const graph::Graph& graph) {
  runtime::DeviceClock clock(worker.emulation.speed);
  WorkerMeasurement measurement;
  HEDDLE_ASSIGN_OR_RETURN(
      measurement.profile,
      runtime::MeasureProfile(
          graph, clock, {.worker = worker.name, .memory_bytes = worker.emulation.memory_bytes}));
  metrics::Registry unused;
  const comm::EndpointOptions options{
      .config = {.worker = worker.name,
                 .job = "plan",
                 .secret = "plan",
                 .transports = section.transports,
                 .tls = section.tls},
      .link_bytes_per_second = worker.emulation.link_bytes_per_second,
      .metrics = &unused};
  HEDDLE_ASSIGN_OR_RETURN(const auto endpoint, comm::Endpoint::Create(options));
  HEDDLE_ASSIGN_OR_RETURN(measurement.link, ProbeOwnLink(*endpoint, options));
  return Candidate{
      .name = worker.name, .host = "local", .profile_json = MeasurementToJson(measurement)};
}

}  // namespace

Result<LocalPlan> PlanLocally(const std::string& job_path,
                              const std::vector<std::string>& overrides,
                              PlanChoice choice) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job, job::LoadJob(job_path, overrides));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();
  runtime::SetThreads(static_cast<int>(job.threads));
  std::vector<Candidate> candidates;
  for (const job::WorkerSection& worker : job.workers) {
    HEDDLE_ASSIGN_OR_RETURN(Candidate candidate, MeasureWorker(worker, job.comm, graph));
    candidates.push_back(std::move(candidate));
  }
  HEDDLE_ASSIGN_OR_RETURN(const planner::ClusterProfile cluster, ClusterOf(candidates));
  const planner::PlanRequest request{.graph = &graph,
                                     .cluster = cluster,
                                     .microbatches = static_cast<int>(job.batch.microbatches()),
                                     .determinism = job.determinism,
                                     .generation = 1};
  if (choice == PlanChoice::kUniform) {
    HEDDLE_ASSIGN_OR_RETURN(const program::Plan plan, planner::UniformGrid(request));
    const std::string text = program::Describe(plan, graph);
    return LocalPlan{
        .plan = plan, .json = program::PlanToJson(plan), .text = text, .explanation = text};
  }
  HEDDLE_ASSIGN_OR_RETURN(const planner::SearchOutcome outcome, planner::Search(request));
  return LocalPlan{.plan = outcome.plan,
                   .json = program::PlanToJson(outcome.plan),
                   .text = program::Describe(outcome.plan, graph),
                   .explanation = planner::Explain(request, outcome)};
}

}  // namespace heddle::elastic
