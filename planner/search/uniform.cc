#include <algorithm>
#include <limits>
#include <optional>

#include "planner/search/improve.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;

constexpr int kMaxSimulatedWorkers = 64;

/// Part `index` of `total` things dealt to `parts`, the rest to the first: [first, last).
std::pair<int, int> EvenPart(int total, int parts, int index) {
  const int each = total / parts;
  const int rest = total % parts;
  const int first = index * each + std::min(index, rest);
  return {first, first + each + (index < rest ? 1 : 0)};
}

/// The grid with recomputation everywhere or nowhere; nothing when memory or counts forbid it.
std::optional<Plan> Grid(const Problem& problem, int pipelines, int stages, bool recompute) {
  Plan plan = EmptyPlan(problem);
  for (int p = 0; p < pipelines; ++p) {
    const auto share = EvenPart(problem.microbatches, pipelines, p);
    Pipeline pipeline{
        .stages = {}, .first_microbatch = share.first, .microbatches = share.second - share.first};
    for (int s = 0; s < stages; ++s) {
      const auto cut = EvenPart(problem.table.segments, stages, s);
      pipeline.stages.push_back({.worker = p * stages + s,
                                 .first_segment = cut.first,
                                 .last_segment = cut.second,
                                 .recompute = recompute});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return FitsMemory(problem, plan) ? std::optional(std::move(plan)) : std::nullopt;
}

/// The grid with its prediction; nothing when it needs more memory than a worker has.
Result<std::optional<Plan>> Scored(const Problem& problem,
                                   int pipelines,
                                   int stages,
                                   bool recompute) {
  std::optional<Plan> plan = Grid(problem, pipelines, stages, recompute);
  if (!plan.has_value()) {
    return plan;
  }
  if (problem.workers() > kMaxSimulatedWorkers) {
    plan->predicted_step_seconds = EstimateStepSeconds(problem.estimate, *plan);
    return plan;
  }
  HEDDLE_ASSIGN_OR_RETURN(const Simulation simulation,
                          ScorePlan(*problem.graph, *plan, problem.cluster));
  for (size_t rank = 0; rank < simulation.peak_bytes.size(); ++rank) {
    const int64_t memory = problem.cluster.workers[rank].memory_bytes;
    if (memory != 0 && simulation.peak_bytes[rank] > memory) {
      return std::optional<Plan>();  // The estimate had let it pass.
    }
  }
  plan->predicted_step_seconds = simulation.step_seconds;
  plan->predicted_peak_bytes = simulation.peak_bytes;
  return plan;
}

}  // namespace

Result<Plan> UniformGrid(const PlanRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Problem> problem, MakeProblem(request));
  const int workers = problem->workers();
  std::optional<Plan> best;
  for (int stages = 1; stages <= std::min(workers, problem->table.segments); ++stages) {
    const int pipelines = workers / stages;
    if (workers % stages != 0 || pipelines > problem->microbatches) {
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(std::optional<Plan> plan,
                            Scored(*problem, pipelines, stages, /*recompute=*/false));
    if (!plan.has_value()) {
      HEDDLE_ASSIGN_OR_RETURN(plan, Scored(*problem, pipelines, stages, /*recompute=*/true));
    }
    if (plan.has_value() &&
        (!best.has_value() || plan->predicted_step_seconds < best->predicted_step_seconds)) {
      best = std::move(plan);
    }
  }
  if (!best.has_value()) {
    return InvalidArgumentError(
        "no grid of equal pipelines and stages on {} workers has the memory for the model",
        workers);
  }
  return *std::move(best);
}

}  // namespace heddle::planner
