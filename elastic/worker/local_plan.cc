#include "elastic/worker/local_plan.h"

#include <algorithm>

#include "base/clock.h"
#include "base/system/file.h"
#include "elastic/planning/measurement.h"
#include "elastic/planning/profile_file.h"
#include "elastic/worker/measure/link_probe.h"
#include "engine/job/job.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/profiler.h"

namespace heddle::elastic {
namespace {

constexpr int64_t kMaxProfileBytes = int64_t{256} << 20;

Result<MeasuredWorker> MeasureWorker(const job::WorkerSection& worker,
                                     const job::JobConfig& job,
                                     const graph::Graph& graph) {
  runtime::DeviceClock clock(worker.emulation.speed);
  MeasuredWorker measured{.worker = worker.name,
                          .measured_at = WallClockSeconds(),
                          .speed = worker.emulation.speed,
                          .link_bytes_per_second = worker.emulation.link_bytes_per_second,
                          .threads = job.threads};
  HEDDLE_ASSIGN_OR_RETURN(
      measured.measurement.profile,
      runtime::MeasureProfile(
          graph, clock, {.worker = worker.name, .memory_bytes = worker.emulation.memory_bytes}));
  metrics::Registry unused;
  const comm::EndpointOptions options{
      .config = {.worker = worker.name,
                 .job = "plan",
                 .secret = "plan",
                 .transports = job.comm.transports,
                 .tls = job.comm.tls},
      .link_bytes_per_second = worker.emulation.link_bytes_per_second,
      .metrics = &unused};
  HEDDLE_ASSIGN_OR_RETURN(const auto endpoint, comm::Endpoint::Create(options));
  HEDDLE_ASSIGN_OR_RETURN(measured.measurement.link, ProbeOwnLink(*endpoint, options));
  return measured;
}

Result<std::vector<MeasuredWorker>> MeasureAll(const job::JobConfig& job,
                                               const graph::Graph& graph) {
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();
  runtime::SetThreads(static_cast<int>(job.threads));
  std::vector<MeasuredWorker> workers;
  for (const job::WorkerSection& worker : job.workers) {
    HEDDLE_ASSIGN_OR_RETURN(MeasuredWorker measured, MeasureWorker(worker, job, graph));
    workers.push_back(std::move(measured));
  }
  return workers;
}

Result<std::vector<MeasuredWorker>> ReadProfile(const std::string& path,
                                                const job::JobConfig& job,
                                                const graph::Graph& graph) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxProfileBytes));
  const auto read = [&]() -> Result<std::vector<MeasuredWorker>> {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<MeasuredWorker> file, ProfileFileFromJson(text));
    return WorkersOfJob(file, job, graph);
  };
  Result<std::vector<MeasuredWorker>> workers = read();
  return workers.ok() ? std::move(workers) : workers.status().WithContext("{}", path);
}

Result<LocalPlan> PlanFor(const planner::PlanRequest& request, PlanChoice choice) {
  const graph::Graph& graph = *request.graph;
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

}  // namespace

Result<LocalPlan> PlanLocally(const LocalPlanOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job,
                          job::LoadJob(options.job_path, options.overrides));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<MeasuredWorker> workers,
                          options.profile_path.empty()
                              ? MeasureAll(job, graph)
                              : ReadProfile(options.profile_path, job, graph));
  if (!options.save_profile_path.empty()) {
    HEDDLE_RETURN_IF_ERROR(
        WriteFileAtomically(options.save_profile_path, ProfileFileToJson(workers)));
  }
  std::vector<Candidate> candidates;
  for (const MeasuredWorker& worker : workers) {
    candidates.push_back({.name = worker.worker,
                          .host = "local",
                          .profile_json = MeasurementToJson(worker.measurement)});
  }
  HEDDLE_ASSIGN_OR_RETURN(const planner::ClusterProfile cluster, ClusterOf(candidates));
  HEDDLE_ASSIGN_OR_RETURN(LocalPlan plan,
                          PlanFor({.graph = &graph,
                                   .cluster = cluster,
                                   .microbatches = static_cast<int>(job.batch.microbatches()),
                                   .determinism = job.determinism,
                                   .generation = 1},
                                  options.choice));
  plan.measured_at = workers.front().measured_at;
  for (const MeasuredWorker& worker : workers) {
    plan.measured_at = std::min(plan.measured_at, worker.measured_at);
  }
  return plan;
}

}  // namespace heddle::elastic
