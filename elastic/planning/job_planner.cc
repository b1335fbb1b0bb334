#include "elastic/planning/job_planner.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "base/units.h"
#include "elastic/planning/measurement.h"
#include "elastic/planning/plan_programs.h"
#include "elastic/planning/process_memory.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/state.h"
#include "planner/predictor/simulator.h"
#include "planner/search/search.h"
#include "planner/teams/team_search.h"

namespace heddle::elastic {
namespace {

// What changing the plan costs beside moving bytes: connecting, lowering, the stop itself.
constexpr double kPauseSeconds = 0.3;

// Steps over which a moved byte must pay for itself.
constexpr int64_t kHorizonSteps = 200;

// What is predicted of one plan from measurements of a quiet machine differs by about so much from
// one time to the next; and a message costs more than is measured of it.
constexpr double kTie = 0.01;

// The plan that is wanted, or that the user gave, on the workers that are there; nothing when it
// names others.
Result<std::optional<program::Plan>> GivenPlan(const job::JobConfig& job,
                                               const PlanRequest& request) {
  if (!request.former_plan_json.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(program::Plan plan, program::PlanFromJson(request.former_plan_json));
    return std::optional<program::Plan>(std::move(plan));
  }
  if (!job.plan) {
    return std::optional<program::Plan>();
  }
  for (const std::string& worker : job.plan->workers) {
    if (std::ranges::find(request.candidates, worker, &Candidate::name) ==
        request.candidates.end()) {
      return std::optional<program::Plan>();
    }
  }
  return job.plan;
}

Status CheckMemory(const program::Plan& plan, const planner::ClusterProfile& cluster) {
  for (const program::WorkerProfile& worker : cluster.workers) {
    const auto rank = std::ranges::find(plan.workers, worker.worker) - plan.workers.begin();
    if (worker.memory_bytes != 0 && rank < std::ssize(plan.workers) &&
        plan.predicted_peak_bytes[static_cast<size_t>(rank)] > worker.memory_bytes) {
      return ResourceExhaustedError(
          "the given plan needs {} on worker {}, which has {}",
          FormatByteSize({plan.predicted_peak_bytes[static_cast<size_t>(rank)]}), worker.worker,
          FormatByteSize({worker.memory_bytes}));
    }
  }
  return Status::Ok();
}

// The given plan, priced, or the best that the search finds.
Result<program::Plan> ChoosePlan(const job::JobConfig& config,
                                 const PlanRequest& request,
                                 const planner::SearchRequest& search) {
  HEDDLE_ASSIGN_OR_RETURN(const auto given, GivenPlan(config, request));
  if (!given) {
    Result<planner::SearchOutcome> found = planner::SearchSizes(search, config.parallel.sizes());
    if (found.ok()) {
      return std::move(found->plan);
    }
    return found.status().code() == StatusCode::kCancelled
               ? found.status()
               : ResourceExhaustedError("{}", found.status().message());
  }
  program::Plan plan = *given;
  plan.generation = request.generation;
  plan.determinism = config.determinism;
  plan.divides_optimizer = plan.divides_optimizer || config.parallel.divides_optimizer;
  HEDDLE_ASSIGN_OR_RETURN(const auto simulation,
                          planner::ScorePlan(*search.graph, plan, search.cluster));
  plan.predicted_step_seconds = simulation.step_seconds;
  plan.predicted_peak_bytes = simulation.peak_bytes;
  HEDDLE_RETURN_IF_ERROR(CheckMemory(plan, search.cluster));
  return plan;
}

// Seconds until the state is where `next` wants it, over the slowest link.
double MovingSeconds(const graph::Graph& graph,
                     const program::Plan& previous,
                     const program::Plan& next,
                     const comm::LinkTable& links) {
  const program::StateLayout layout = program::LayoutOf(graph, previous);
  std::vector<program::HeldState> held;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    held.push_back({.worker = previous.workers[rank], .boxes = layout[rank]});
  }
  double slowest = 0;
  for (int from = 0; from < links.size(); ++from) {
    for (int to = 0; to < links.size(); ++to) {
      slowest = std::max(slowest, from == to ? 0 : 1 / links.At(from, to).bytes_per_second);
    }
  }
  const int64_t bytes = program::TransferBytes(graph, program::PlanTransfers(graph, held, next));
  return static_cast<double>(bytes) * slowest;
}

}  // namespace

Result<planner::SearchRequest> SearchFor(const job::JobConfig& job,
                                         const graph::Graph& graph,
                                         const PlanRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(
      const comm::MeasuredLinks links,
      MeasuredLinksFrom(request.links, static_cast<int>(request.candidates.size())));
  HEDDLE_ASSIGN_OR_RETURN(planner::ClusterProfile cluster,
                          ClusterOf(request.candidates, links, job.comm.preference()));
  planner::SearchRequest search{.graph = &graph,
                                .cluster = std::move(cluster),
                                .workers = {},
                                .microbatches = static_cast<int>(job.batch.microbatches()),
                                .determinism = job.determinism,
                                .divides_optimizer = job.parallel.divides_optimizer,
                                .divides_sequence = job.parallel.divides_sequence,
                                .generation = request.generation,
                                .horizon_steps = kHorizonSteps,
                                .tie = kTie};
  if (!request.current_plan_json.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(search.previous, program::PlanFromJson(request.current_plan_json));
    HEDDLE_RETURN_IF_ERROR(
        program::ValidatePlan(*search.previous, graph).WithContext("the plan in force"));
    if (!request.current_runs) {
      search.limits = planner::SearchLimits::Hurried();
    }
  }
  return search;
}

Result<std::shared_ptr<const JobPlanner::Parsed>> JobPlanner::Parse(const Job& job) {
  MutexLock lock(mutex_);
  if (parsed_ == nullptr || parsed_->id != job.id) {
    auto parsed = std::make_shared<Parsed>();
    parsed->id = job.id;
    HEDDLE_ASSIGN_OR_RETURN(parsed->config, job::ParseJob(job.yaml, "the job"));
    HEDDLE_ASSIGN_OR_RETURN(
        parsed->graph,
        graph::BuildTrainingGraph(parsed->config.model, job::GraphOptions(parsed->config)));
    parsed_ = std::move(parsed);
  }
  return parsed_;
}

PlanOutcome JobPlanner::Plan(const Job& job,
                             const PlanRequest& request,
                             const std::stop_token& stop) {
  PlanOutcome outcome;
  outcome.status = [&]() -> Status {
    HEDDLE_ASSIGN_OR_RETURN(const auto parsed, Parse(job));
    const graph::Graph& graph = parsed->graph;
    HEDDLE_ASSIGN_OR_RETURN(planner::SearchRequest search,
                            SearchFor(parsed->config, graph, request));
    search.stop = stop;
    HEDDLE_ASSIGN_OR_RETURN(program::Plan plan, ChoosePlan(parsed->config, request, search));
    HEDDLE_ASSIGN_OR_RETURN(const auto programs, program::LowerAll(graph, plan));
    outcome.members = plan.workers;
    std::vector<int64_t> process_bytes;
    // Beside hashes and verification, which take longer: a recovery waits for all.
    Thread memory("memory", [&] {
      process_bytes = ProcessBytes(parsed->config, graph, plan, programs, search.cluster);
    });
    const Status taken = TakePrograms(graph, plan, programs, outcome);
    memory.Join();
    HEDDLE_RETURN_IF_ERROR(taken);
    plan.predicted_process_bytes = std::move(process_bytes);
    outcome.predicted_step_seconds = plan.predicted_step_seconds;
    outcome.plan_json = program::PlanToJson(plan);
    outcome.move_seconds = kPauseSeconds;
    if (search.previous && request.current_runs) {
      const Result<planner::Simulation> current =
          planner::ScorePlan(graph, *search.previous, search.cluster);
      outcome.current_step_seconds = current.ok() ? current->step_seconds : 0;
    }
    if (search.previous) {
      outcome.move_seconds += MovingSeconds(graph, *search.previous, plan, search.cluster.links);
    }
    return Status::Ok();
  }();
  return outcome;
}

}  // namespace heddle::elastic
