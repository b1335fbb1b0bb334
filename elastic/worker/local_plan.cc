#include "elastic/worker/local_plan.h"

#include <algorithm>
#include <limits>

#include "base/system/file.h"
#include "base/system/host.h"
#include "elastic/planning/job_planner.h"
#include "elastic/planning/process_memory.h"
#include "elastic/planning/profile_file.h"
#include "elastic/worker/measure/local_links.h"
#include "elastic/worker/measure/measure_worker.h"
#include "engine/job/devices.h"
#include "engine/job/job.h"
#include "engine/program/lowering/lower.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/device.h"
#include "planner/teams/explain_groups.h"
#include "planner/teams/team_search.h"

namespace heddle::elastic {
namespace {

constexpr int64_t kMaxProfileBytes = int64_t{256} << 20;

comm::EndpointConfig EndpointConfigOf(const job::JobConfig& job, const std::string& worker) {
  return {.worker = worker,
          .job = "plan",
          .secret = "plan",
          .transports = job.comm.transports,
          .tls = job.comm.tls};
}

Result<MeasuredWorker> MeasureSection(const job::WorkerSection& worker,
                                      const std::string& device_name,
                                      const job::JobConfig& job,
                                      const program::ProfiledWork& work,
                                      KeptFiles& kept) {
  const auto device = runtime::OpenDevice(
      device_name,
      {.speed = worker.emulation.speed, .memory_cap_bytes = worker.emulation.memory_bytes});
  if (!device.ok()) {
    return device.status().WithContext("worker {}", worker.name);
  }
  metrics::Registry unused;
  const comm::EndpointOptions options{.config = EndpointConfigOf(job, worker.name),
                                      .metrics = &unused};
  const MeasuredAs as{.worker = worker.name,
                      .work = &work,
                      .emulation = worker.emulation,
                      .device = device->get(),
                      .threads = job.threads};
  Progress nobody_asks;
  HEDDLE_ASSIGN_OR_RETURN(WorkerMeasurement measurement,
                          MeasureWorker(as, kept, options, nobody_asks));
  return MeasuredWorker{
      .worker = worker.name, .host = HostIdentity(), .measurement = std::move(measurement)};
}

Result<ProfileFile> MeasureAll(const job::JobConfig& job, const graph::Graph& graph) {
  runtime::WarnAboutBlas();
  runtime::KeepFreedMemory();
  runtime::SetThreads(static_cast<int>(job.threads));
  KeptFiles kept(CacheFolder());
  HEDDLE_ASSIGN_OR_RETURN(const program::ProfiledWork work, WorkToMeasure(job, graph));
  HEDDLE_ASSIGN_OR_RETURN(const auto devices, job::DevicesHere(job));
  ProfileFile file;
  std::vector<double> rates;
  for (const job::WorkerSection& worker : job.workers) {
    HEDDLE_ASSIGN_OR_RETURN(MeasuredWorker measured,
                            MeasureSection(worker, devices.at(worker.name), job, work, kept));
    file.workers.push_back(std::move(measured));
    rates.push_back(worker.emulation.link_bytes_per_second);
  }
  HEDDLE_ASSIGN_OR_RETURN(file.links, LocalLinks(kept, rates, job.comm.preference().list,
                                                 EndpointConfigOf(job, "links")));
  return file;
}

Result<PlanRequest> ReadRequest(const std::string& path,
                                const job::JobConfig& job,
                                const graph::Graph& graph) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxProfileBytes));
  const auto read = [&]() -> Result<PlanRequest> {
    HEDDLE_ASSIGN_OR_RETURN(const ProfileFile file, ProfileFileFromJson(text));
    return PlanRequestOf(file, job, graph);
  };
  Result<PlanRequest> request = read();
  return request.ok() ? std::move(request) : request.status().WithContext("{}", path);
}

Result<PlanRequest> MeasureRequest(const std::string& save_path,
                                   const job::JobConfig& job,
                                   const graph::Graph& graph) {
  HEDDLE_ASSIGN_OR_RETURN(const ProfileFile file, MeasureAll(job, graph));
  if (!save_path.empty()) {
    HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(save_path, ProfileFileToJson(file)));
  }
  return PlanRequestOf(file, job, graph);
}

Result<LocalPlan> PlanFor(const planner::SearchRequest& request,
                          PlanChoice choice,
                          const job::JobConfig& job) {
  const graph::Graph& graph = *request.graph;
  const job::ParallelSection& parallel = job.parallel;
  if (choice == PlanChoice::kUniform) {
    if (parallel.tensor > 1) {
      return InvalidArgumentError(
          "--uniform plans stages of one worker, and the job's have {} (parallel.tensor)",
          parallel.tensor);
    }
    HEDDLE_ASSIGN_OR_RETURN(const program::Plan plan, planner::UniformGrid(request));
    const std::string text = program::Describe(plan, graph);
    return LocalPlan{
        .plan = plan, .json = program::PlanToJson(plan), .text = text, .explanation = text};
  }
  HEDDLE_ASSIGN_OR_RETURN(planner::SearchOutcome outcome,
                          planner::SearchSizes(request, parallel.sizes()));
  HEDDLE_ASSIGN_OR_RETURN(const auto programs, program::LowerAll(graph, outcome.plan));
  outcome.plan.predicted_process_bytes =
      ProcessBytes(job, graph, outcome.plan, programs, request.cluster);
  HEDDLE_ASSIGN_OR_RETURN(const std::string groups, planner::ExplainGroups(request, outcome.plan));
  return LocalPlan{.plan = outcome.plan,
                   .json = program::PlanToJson(outcome.plan),
                   .text = program::Describe(outcome.plan, graph),
                   .explanation = planner::Explain(request, outcome) + groups};
}

Result<PlanInputs> InputsOf(const PlanRequest& request) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  PlanInputs inputs{.profiles_measured_at = kNever,
                    .links_measured_at = kNever,
                    .pairs = request.links.pairs_size()};
  for (const Candidate& candidate : request.candidates) {
    HEDDLE_ASSIGN_OR_RETURN(const WorkerMeasurement measurement,
                            MeasurementFromJson(candidate.profile_json));
    const MeasuredLink& own = measurement.link;
    inputs.profiles_measured_at =
        std::min(inputs.profiles_measured_at, measurement.profile_measured_at);
    inputs.links_measured_at = std::min(inputs.links_measured_at, own.measured_at);
    inputs.latency_spread =
        std::max(inputs.latency_spread,
                 own.latency_spread_seconds / std::max(own.link.latency_seconds, 1e-9));
    inputs.rate_spread =
        std::max(inputs.rate_spread, own.bytes_per_second_spread / own.link.bytes_per_second);
  }
  return inputs;
}

}  // namespace

Result<LocalPlan> PlanLocally(const LocalPlanOptions& options) {
  if (!options.profile_path.empty() && !options.save_profile_path.empty()) {
    return InvalidArgumentError(
        "--save-profile writes what is measured, and with --profile nothing is: give one of them");
  }
  HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job,
                          job::LoadJob(options.job_path, options.overrides));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph,
                          graph::BuildTrainingGraph(job.model, job::GraphOptions(job)));
  HEDDLE_ASSIGN_OR_RETURN(const PlanRequest request,
                          options.profile_path.empty()
                              ? MeasureRequest(options.save_profile_path, job, graph)
                              : ReadRequest(options.profile_path, job, graph));
  HEDDLE_ASSIGN_OR_RETURN(const planner::SearchRequest search, SearchFor(job, graph, request));
  HEDDLE_ASSIGN_OR_RETURN(LocalPlan plan, PlanFor(search, options.choice, job));
  HEDDLE_ASSIGN_OR_RETURN(plan.inputs, InputsOf(request));
  return plan;
}

}  // namespace heddle::elastic
