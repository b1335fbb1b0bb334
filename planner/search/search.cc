#include "planner/search/search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/units.h"
#include "engine/program/lowering/lower.h"
#include "planner/search/divisions.h"
#include "planner/search/exhaustive.h"
#include "planner/search/fleet.h"
#include "planner/search/improve.h"
#include "planner/search/problem.h"
#include "planner/search/ties.h"
#include "planner/search/uniform.h"
#include "planner/search/warm_start.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;

constexpr size_t kKeptDivisions = 24;  ///< For each number of pipelines.
constexpr size_t kImprovedOfEach = 4;
constexpr size_t kImproved = 12;  ///< Candidates improved by estimates.
constexpr size_t kMaxEveryPlan = 4000;
constexpr size_t kMaxAlternatives = 4;
constexpr int kMaxExactClasses = 12;
constexpr int kMaxSimulatedWorkers = 64;
constexpr int64_t kMaxInstructions = 2000000;  ///< Plans with more are not simulated.
constexpr double kCouldWin = 1.15;  ///< An estimate is rarely that much above the simulation.
constexpr int kAhead = 2;  ///< One for messages in flight, one for a neighbour that is late.
constexpr int kMaxAhead = 6;
constexpr double kWorthMoreAhead = 0.995;  ///< Fraction of the step's time with one ahead less.

std::string FormatBytes(int64_t bytes) {
  return FormatByteSize(ByteSize{bytes});
}

class Searcher {
 public:
  Searcher(const SearchRequest& request, Problem& problem)
      : request_(request),
        problem_(problem),
        exact_(ExactClasses(problem.cluster)) {
    // Estimates instructions: forward, backward, folds and messages of every node and microbatch.
    instructions_ = 2 * static_cast<int64_t>(problem.graph->nodes.size()) * problem.microbatches;
    simulated_ = problem.workers() <= kMaxSimulatedWorkers && instructions_ <= kMaxInstructions;
  }

  Result<SearchOutcome> Run() {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<ScoredPlan> candidates, Candidates());
    std::vector<ScoredPlan> finalists = ImproveByEstimate(candidates);
    if (simulated_) {
      SimulateFinalists(finalists);
    }
    BreakTies(finalists);
    if (request_.stop.stop_requested()) {
      return Stopped();
    }
    SearchOutcome outcome;
    outcome.plan = finalists.front().plan;
    outcome.simulated = simulated_;
    HEDDLE_RETURN_IF_ERROR(Predict(outcome));
    double speed = 0;
    for (const WorkerCosts* costs : problem_.costs) {
      speed += 1 / std::max(costs->Stage(0, problem_.table.segments, false), 1e-300);
    }
    outcome.bound_seconds = problem_.microbatches / speed;
    outcome.alternatives = AlternativesOf(finalists, candidates);
    return outcome;
  }

 private:
  static Status Stopped() { return CancelledError("the search was stopped"); }

  /// The candidates with their estimates, fastest first.
  Result<std::vector<ScoredPlan>> Candidates() {
    std::vector<Plan> plans = Divided();
    if (request_.stop.stop_requested()) {
      return Stopped();
    }
    if (plans.empty()) {
      plans = FleetPlans(problem_, exact_);
    }
    for (Plan& plan : EveryPlan(problem_, kMaxEveryPlan)) {
      plans.push_back(std::move(plan));
    }
    if (request_.previous.has_value()) {
      for (Plan& plan : PlansFrom(problem_, *request_.previous)) {
        plans.push_back(std::move(plan));
      }
    }
    plans = WithinMemory(std::move(plans));
    AddBaselines();
    for (const ScoredPlan& baseline : baselines_) {
      plans.push_back(baseline.plan);
    }
    std::vector<ScoredPlan> scored;
    for (Plan& plan : plans) {
      if (request_.stop.stop_requested()) {
        return Stopped();
      }
      if (request_.previous.has_value()) {
        plan = KeepPlaces(problem_, exact_, *request_.previous, std::move(plan));
      }
      const double seconds = Estimate(plan);
      scored.push_back({std::move(plan), seconds});
    }
    if (scored.empty()) {
      return NothingFits();
    }
    SortByTime(scored);
    return scored;
  }

  /// Replaces each plan that does not fit by up to two: with other shares, and with recomputation.
  std::vector<Plan> WithinMemory(std::vector<Plan> plans) const {
    std::vector<Plan> within;
    for (Plan& plan : plans) {
      if (FitsMemory(problem_, plan)) {
        within.push_back(std::move(plan));
        continue;
      }
      if (std::optional<Plan> repaired = RepairShares(problem_, plan)) {
        within.push_back(*std::move(repaired));
      }
      if (SettleMemory(problem_, plan)) {
        within.push_back(std::move(plan));
      }
    }
    return within;
  }

  /// Adds the plans that the search must not lose to: the uniform grids, and the plan in force.
  void AddBaselines() {
    for (Plan& plan : UniformGrids(problem_)) {
      const double seconds = Estimate(plan);
      baselines_.push_back({std::move(plan), seconds});
    }
    if (!request_.previous.has_value()) {
      return;
    }
    if (std::optional<Plan> plan = InForce(problem_, *request_.previous)) {
      const double seconds = Estimate(*plan);
      baselines_.push_back({*std::move(plan), seconds});
    }
  }

  /// The plans of the best divisions; empty if there are too many divisions.
  std::vector<Plan> Divided() {
    if (static_cast<int>(exact_.members.size()) > kMaxExactClasses) {
      return {};
    }
    std::vector<Plan> plans;
    // Assumes one, two, four … pipelines, which decides the cost of memory and of reductions.
    for (int pipelines = 1; pipelines <= std::min(problem_.workers(), problem_.microbatches);
         pipelines *= 2) {
      std::vector<WorkerCosts> class_costs;
      PipelineInput input = InputOf(problem_, exact_, pipelines, class_costs);
      if (problem_.limits.max_depth == 0) {
        input.max_depth = std::min(problem_.workers(), problem_.table.segments);
      }
      const PipelineTable table = PipelineTable::Build(input);
      const auto divisions = BestDivisions(problem_, exact_, table, kKeptDivisions);
      if (!divisions.has_value()) {
        return {};
      }
      for (const Division& division : *divisions) {
        plans.push_back(PlanOf(problem_, DraftOf(exact_, table, division)));
      }
    }
    return plans;
  }

  static void SortByTime(std::vector<ScoredPlan>& plans) {
    std::stable_sort(plans.begin(), plans.end(), [](const ScoredPlan& a, const ScoredPlan& b) {
      return a.seconds < b.seconds;
    });
  }

  double Moving(const Plan& plan) {
    if (!request_.previous.has_value() || request_.horizon_steps <= 0) {
      return 0;
    }
    return MovingSeconds(problem_, *request_.previous, plan) /
           static_cast<double>(request_.horizon_steps);
  }

  /// The estimate of the plan with its share of moving; infinite after a stop request, so that no
  /// plan is improved any more.
  double Estimate(const Plan& plan) {
    if (request_.stop.stop_requested()) {
      return std::numeric_limits<double>::infinity();
    }
    return EstimateStepSeconds(problem_.estimate, plan) + Moving(plan);
  }

  /// Simulates the plan with up to `most` microbatches ahead, as memory allows.
  Result<Simulation> SimulateWithSlack(int most, Plan& plan) const {
    GiveSlack(problem_, most, plan);
    return SimulatePlan(plan);
  }

  double Measure(Plan plan, int most = kAhead) {
    const Result<Simulation> simulation =
        request_.stop.stop_requested() ? CancelledError("stopped") : SimulateWithSlack(most, plan);
    return simulation.ok() ? simulation->step_seconds + Moving(plan)
                           : std::numeric_limits<double>::infinity();
  }

  Result<Simulation> SimulatePlan(const Plan& plan) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<program::Program> programs,
                            program::LowerAll(*problem_.graph, plan));
    return Simulate(*problem_.graph, programs, problem_.cluster);
  }

  /// The fastest candidates, and the fastest few of each number of pipelines.
  static std::vector<ScoredPlan> Promising(const std::vector<ScoredPlan>& candidates) {
    std::map<size_t, size_t> taken;
    std::vector<ScoredPlan> promising;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const size_t same = taken[candidates[i].plan.pipelines.size()]++;
      if (i < kImproved || same < kImprovedOfEach) {
        promising.push_back(candidates[i]);
      }
    }
    return promising;
  }

  std::vector<ScoredPlan> ImproveByEstimate(const std::vector<ScoredPlan>& candidates) {
    int budget = request_.limits.estimates;
    std::vector<ScoredPlan> improved;
    const std::vector<ScoredPlan> promising = Promising(candidates);
    for (size_t i = 0; i < promising.size(); ++i) {
      // Each plan gets an equal part of the budget that is left.
      int part = budget / static_cast<int>(promising.size() - i);
      const int given = part;
      ScoredPlan better = Improve(
          problem_, promising[i], [this](const Plan& plan) { return Estimate(plan); }, part);
      budget -= given - part;
      const bool known = std::any_of(improved.begin(), improved.end(), [&](const auto& other) {
        return other.plan.pipelines == better.plan.pipelines;
      });
      if (!known) {
        improved.push_back(std::move(better));
      }
    }
    SortByTime(improved);
    return improved;
  }

  /// The fastest, and the fastest of each other number of pipelines: estimates compare plans of one
  /// kind better than plans of several.
  std::vector<ScoredPlan> Finalists(const std::vector<ScoredPlan>& plans) const {
    const auto count = static_cast<size_t>(std::max(1, request_.limits.simulated_candidates));
    std::set<size_t> kinds;
    std::vector<ScoredPlan> finalists;
    for (const ScoredPlan& plan : plans) {
      const bool first = kinds.insert(plan.plan.pipelines.size()).second;
      if (finalists.size() < count || (first && kinds.size() <= count)) {
        finalists.push_back(plan);
      }
    }
    return finalists;
  }

  /// Replaces estimates by simulations and improves by them; `plans` is left with the simulated
  /// ones, fastest first.
  void SimulateFinalists(std::vector<ScoredPlan>& plans) {
    plans = Finalists(plans);
    for (ScoredPlan& plan : plans) {
      plan.seconds = Measure(plan.plan);
    }
    SortByTime(plans);
    for (ScoredPlan& baseline : baselines_) {
      if (baseline.seconds <= kCouldWin * plans.front().seconds) {
        baseline.seconds = std::min(Measure(baseline.plan), Measure(baseline.plan, 0));
        plans.push_back(baseline);
      }
    }
    SortByTime(plans);
    // Improves the fastest plan of each number of pipelines, fastest first; each leaves the rest of
    // its budget to the next one.
    int budget = static_cast<int>(request_.limits.simulated_instructions /
                                  std::max<int64_t>(1, instructions_));
    std::set<size_t> improved;
    for (ScoredPlan& plan : plans) {
      if (plan.seconds < std::numeric_limits<double>::infinity() &&
          improved.insert(plan.plan.pipelines.size()).second) {
        plan = Improve(
            problem_, plan, [this](const Plan& moved) { return Measure(moved); }, budget);
      }
    }
    SortByTime(plans);
  }

  /// Moves the preferred plan to the front.
  void BreakTies(std::vector<ScoredPlan>& plans) const {
    double bound = std::numeric_limits<double>::infinity();
    for (const ScoredPlan& baseline : baselines_) {
      bound = std::min(bound, baseline.seconds);
    }
    const Plan* const in_force = request_.previous.has_value() ? &*request_.previous : nullptr;
    const auto taken = plans.begin() + static_cast<std::ptrdiff_t>(Preferred(
                                           *problem_.graph, plans, request_.tie, bound, in_force));
    std::rotate(plans.begin(), taken, taken + 1);
  }

  Status Predict(SearchOutcome& outcome) {
    if (simulated_) {
      Plan plain = outcome.plan;
      HEDDLE_ASSIGN_OR_RETURN(Simulation without, SimulateWithSlack(0, plain));
      HEDDLE_ASSIGN_OR_RETURN(outcome.simulation, SimulateWithSlack(kAhead, outcome.plan));
      if (without.step_seconds < outcome.simulation.step_seconds) {
        outcome.plan = std::move(plain);
        outcome.simulation = std::move(without);
      }
      HEDDLE_RETURN_IF_ERROR(GoFurtherAhead(outcome));
    } else {
      Plan ahead = outcome.plan;
      GiveSlack(problem_, 0, outcome.plan);
      GiveSlack(problem_, kAhead, ahead);
      const double without = EstimateStepSeconds(problem_.estimate, outcome.plan);
      outcome.simulation.step_seconds = EstimateStepSeconds(problem_.estimate, ahead);
      if (without < outcome.simulation.step_seconds) {
        outcome.simulation.step_seconds = without;
      } else {
        outcome.plan = std::move(ahead);
      }
      outcome.simulation.peak_bytes.assign(static_cast<size_t>(problem_.workers()), 0);
      for (const Pipeline& pipeline : outcome.plan.pipelines) {
        for (size_t j = 0; j < pipeline.stages.size(); ++j) {
          outcome.simulation.peak_bytes[static_cast<size_t>(pipeline.stages[j].worker())] =
              problem_.memory->PeakBytes(ShapeOf(outcome.plan, pipeline, j));
        }
      }
    }
    outcome.plan.predicted_step_seconds = outcome.simulation.step_seconds;
    outcome.plan.predicted_peak_bytes = outcome.simulation.peak_bytes;
    return Status::Ok();
  }

  /// Computes more microbatches ahead while that makes the step faster, since messages take long.
  Status GoFurtherAhead(SearchOutcome& outcome) const {
    for (int most = kAhead + 1; most <= kMaxAhead; ++most) {
      Plan further = outcome.plan;
      HEDDLE_ASSIGN_OR_RETURN(Simulation simulation, SimulateWithSlack(most, further));
      if (further.pipelines == outcome.plan.pipelines ||
          simulation.step_seconds > kWorthMoreAhead * outcome.simulation.step_seconds) {
        break;
      }
      outcome.plan = std::move(further);
      outcome.simulation = std::move(simulation);
    }
    return Status::Ok();
  }

  /// The best plan of each other number of pipelines or of working members.
  static std::vector<Alternative> AlternativesOf(const std::vector<ScoredPlan>& finalists,
                                                 const std::vector<ScoredPlan>& candidates) {
    const auto kind = [](const Plan& plan) {
      return std::pair(plan.pipelines.size(), plan.IdleWorkers().size());
    };
    const ScoredPlan& chosen = finalists.front();
    std::set<std::pair<size_t, size_t>> seen = {kind(chosen.plan)};
    std::vector<Alternative> alternatives;
    for (const std::vector<ScoredPlan>* list : {&finalists, &candidates}) {
      for (const ScoredPlan& other : *list) {
        if (alternatives.size() < kMaxAlternatives && seen.insert(kind(other.plan)).second) {
          alternatives.push_back(
              {.plan = other.plan, .step_seconds = other.seconds, .why = Why(chosen, other)});
        }
      }
    }
    return alternatives;
  }

  static std::string Why(const ScoredPlan& chosen, const ScoredPlan& other) {
    if (other.seconds <= chosen.seconds) {
      return "is no faster within the precision of profiles";
    }
    const size_t idle = other.plan.IdleWorkers().size();
    if (idle > chosen.plan.IdleWorkers().size()) {
      return fmt::format("leaves {} of {} workers out", idle, other.plan.workers.size());
    }
    if (idle < chosen.plan.IdleWorkers().size()) {
      return "waits for workers that are too slow to help";
    }
    return other.plan.pipelines.size() > chosen.plan.pipelines.size()
               ? "reduces the gradients over more pipelines"
               : "has deeper pipelines, which take longer to fill and drain";
  }

  Status NothingFits() const {
    int64_t state = 0;
    for (const int64_t bytes : problem_.table.state_bytes) {
      state += bytes;
    }
    int64_t total = 0;
    int64_t largest = 0;
    for (const program::WorkerProfile& worker : problem_.cluster.workers) {
      total += worker.memory_bytes;
      largest = std::max(largest, worker.memory_bytes);
    }
    return InvalidArgumentError(
        "no combination of the {} workers has the memory for the model: its state alone takes {}, "
        "one segment on one worker at least {}; the workers have {} together, at most {} each",
        problem_.workers(), FormatBytes(state), FormatBytes(LargestSegment()), FormatBytes(total),
        FormatBytes(largest));
  }

  int64_t LargestSegment() const {
    int64_t largest = 0;
    for (int s = 0; s < problem_.table.segments; ++s) {
      largest = std::max(largest, problem_.memory->PeakBytes({s, s + 1, 0, 1, true}));
    }
    return largest;
  }

  const SearchRequest& request_;
  Problem& problem_;
  const WorkerClasses exact_;
  int64_t instructions_ = 0;
  bool simulated_ = false;
  std::vector<ScoredPlan> baselines_;
};

}  // namespace

SearchLimits SearchLimits::Hurried() {
  SearchLimits limits;
  limits.max_divisions = 500;
  limits.simulated_candidates = 3;
  limits.estimates = 100;
  limits.simulated_instructions = 0;
  return limits;
}

Result<SearchOutcome> Search(const SearchRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Problem> problem, MakeProblem(request));
  return Searcher(request, *problem).Run();
}

Result<Plan> FindPlan(const SearchRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(SearchOutcome outcome, Search(request));
  return std::move(outcome.plan);
}

}  // namespace heddle::planner
