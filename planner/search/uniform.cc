#include "planner/search/uniform.h"

#include <algorithm>
#include <optional>

#include "planner/search/improve.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;

constexpr int kMaxSimulatedWorkers = 64;

/// The range [first, last) of part `index` if `total` is divided into `parts`, the rest to the
/// first.
std::pair<int, int> EvenPart(int total, int parts, int index) {
  const int each = total / parts;
  const int rest = total % parts;
  const int first = index * each + std::min(index, rest);
  return {first, first + each + (index < rest ? 1 : 0)};
}

/// The grid with recomputation in all stages or in none; nullopt if it does not fit in memory.
std::optional<Plan> Grid(const Problem& problem, int pipelines, int stages, bool recompute) {
  Plan plan = EmptyPlan(problem);
  for (int p = 0; p < pipelines; ++p) {
    const auto share = EvenPart(problem.microbatches, pipelines, p);
    Pipeline pipeline{
        .stages = {}, .first_microbatch = share.first, .microbatches = share.second - share.first};
    for (int s = 0; s < stages; ++s) {
      const auto cut = EvenPart(problem.table.segments, stages, s);
      pipeline.stages.push_back({.group = {p * stages + s},
                                 .first_segment = cut.first,
                                 .last_segment = cut.second,
                                 .recompute = recompute});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return FitsMemory(problem, plan) ? std::optional(std::move(plan)) : std::nullopt;
}

/// Predicts the step by simulation, or by the estimate if there are too many workers.
Status Predict(const Problem& problem, Plan& plan) {
  if (problem.workers() > kMaxSimulatedWorkers) {
    plan.predicted_step_seconds = EstimateStepSeconds(problem.estimate, plan);
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const Simulation simulation,
                          ScorePlan(*problem.graph, plan, problem.cluster));
  plan.predicted_step_seconds = simulation.step_seconds;
  plan.predicted_peak_bytes = simulation.peak_bytes;
  return Status::Ok();
}

}  // namespace

std::vector<Plan> UniformGrids(const Problem& problem) {
  const int workers = problem.workers();
  const int deepest =
      problem.limits.max_depth > 0 ? problem.limits.max_depth : problem.table.segments;
  std::vector<Plan> grids;
  for (int stages = 1; stages <= std::min(workers, deepest); ++stages) {
    const int pipelines = workers / stages;
    if (workers % stages != 0 || stages > problem.table.segments ||
        pipelines > problem.microbatches) {
      continue;
    }
    std::optional<Plan> plan = Grid(problem, pipelines, stages, /*recompute=*/false);
    if (!plan.has_value()) {
      plan = Grid(problem, pipelines, stages, /*recompute=*/true);
    }
    if (plan.has_value()) {
      grids.push_back(*std::move(plan));
    }
  }
  return grids;
}

Result<Plan> UniformGrid(const SearchRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Problem> problem, MakeProblem(request));
  std::optional<Plan> best;
  for (Plan& plan : UniformGrids(*problem)) {
    HEDDLE_RETURN_IF_ERROR(Predict(*problem, plan));
    if (!best.has_value() || plan.predicted_step_seconds < best->predicted_step_seconds) {
      best = std::move(plan);
    }
  }
  if (!best.has_value()) {
    return InvalidArgumentError(
        "no grid of equal pipelines and stages on {} workers has the memory for the model",
        problem->workers());
  }
  return *std::move(best);
}

}  // namespace heddle::planner
