#include "planner/search/warm_start.h"

#include <algorithm>
#include <map>

#include "engine/program/state.h"
#include "planner/search/improve.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

constexpr int kMaxWorkersToExchange = 64;

/// By worker of the previous plan: its rank in the problem; -1: it is lost.
std::vector<int> NewRanks(const Problem& problem, const Plan& previous) {
  std::map<std::string_view, int> ranks;
  for (int rank = 0; rank < problem.workers(); ++rank) {
    ranks.emplace(problem.cluster.workers[static_cast<size_t>(rank)].worker, rank);
  }
  std::vector<int> result;
  for (const std::string& name : previous.workers) {
    const auto found = ranks.find(name);
    result.push_back(found == ranks.end() ? -1 : found->second);
  }
  return result;
}

Pace PaceOf(const Problem& problem, const std::vector<Stage>& stages) {
  Pace pace;
  for (const Stage& stage : stages) {
    const double seconds = problem.costs[static_cast<size_t>(stage.worker())]->Stage(
        stage.first_segment, stage.last_segment, stage.recompute);
    pace.period = std::max(pace.period, seconds);
    pace.fill += seconds;
  }
  return pace;
}

}  // namespace

std::optional<Plan> InForce(const Problem& problem, const Plan& previous) {
  if (previous.microbatches() != problem.microbatches) {
    return std::nullopt;
  }
  const std::vector<int> ranks = NewRanks(problem, previous);
  Plan plan = EmptyPlan(problem);
  plan.pipelines = previous.pipelines;
  for (Pipeline& pipeline : plan.pipelines) {
    for (Stage& stage : pipeline.stages) {
      stage.group = {ranks[static_cast<size_t>(stage.worker())]};
      stage.ahead = 0;
      if (stage.worker() < 0) {
        return std::nullopt;
      }
    }
  }
  return FitsMemory(problem, plan) ? std::optional(std::move(plan)) : std::nullopt;
}

std::vector<Plan> PlansFrom(const Problem& problem, const Plan& previous) {
  const std::vector<int> ranks = NewRanks(problem, previous);
  std::vector<WorkerCosts> rank_costs;
  const PipelineInput by_rank =
      InputByRank(problem, static_cast<int>(previous.pipelines.size()), rank_costs);
  Draft whole;
  Draft repaired;
  for (const Pipeline& pipeline : previous.pipelines) {
    std::vector<Stage> stages = pipeline.stages;
    std::vector<int> order;
    for (Stage& stage : stages) {
      stage.group = {ranks[static_cast<size_t>(stage.worker())]};
      stage.ahead = 0;
      if (stage.worker() >= 0) {
        order.push_back(stage.worker());
      }
    }
    if (order.size() == stages.size()) {
      whole.pipelines.push_back({{.pace = PaceOf(problem, stages), .stages = stages}});
    }
    stages = Recut(by_rank, order);
    if (!stages.empty()) {
      repaired.pipelines.push_back({{.pace = PaceOf(problem, stages), .stages = stages}});
    }
  }
  std::vector<Plan> plans;
  for (const Draft& draft : {whole, repaired}) {
    if (!draft.pipelines.empty()) {
      plans.push_back(PlanOf(problem, draft));
    }
  }
  return plans;
}

Plan KeepPlaces(const Problem& problem,
                const WorkerClasses& exact,
                const Plan& previous,
                Plan plan) {
  if (problem.workers() > kMaxWorkersToExchange) {
    return plan;
  }
  // held[rank]: segments under the previous plan.
  std::vector<std::pair<int, int>> held(static_cast<size_t>(problem.workers()), {0, 0});
  const std::vector<int> ranks = NewRanks(problem, previous);
  for (const Pipeline& pipeline : previous.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      const int rank = ranks[static_cast<size_t>(stage.worker())];
      if (rank >= 0) {
        held[static_cast<size_t>(rank)] = {stage.first_segment, stage.last_segment};
      }
    }
  }
  const auto kept = [&](int rank, const Stage* stage) {
    const auto& range = held[static_cast<size_t>(rank)];
    return stage == nullptr ? 0
                            : std::max(0, std::min(stage->last_segment, range.second) -
                                              std::max(stage->first_segment, range.first));
  };
  std::vector<Stage*> place(static_cast<size_t>(problem.workers()), nullptr);
  for (Pipeline& pipeline : plan.pipelines) {
    for (Stage& stage : pipeline.stages) {
      place[static_cast<size_t>(stage.worker())] = &stage;
    }
  }
  // Every exchange raises the number of kept segments, so this ends.
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::vector<int>& members : exact.members) {
      for (const int a : members) {
        for (const int b : members) {
          Stage*& at_a = place[static_cast<size_t>(a)];
          Stage*& at_b = place[static_cast<size_t>(b)];
          if (a < b && kept(a, at_b) + kept(b, at_a) > kept(a, at_a) + kept(b, at_b)) {
            std::swap(at_a, at_b);
            changed = true;
          }
        }
      }
    }
  }
  for (size_t rank = 0; rank < place.size(); ++rank) {
    if (place[rank] != nullptr) {
      place[rank]->group = {static_cast<int>(rank)};
    }
  }
  return plan;
}

double MovingSeconds(const Problem& problem, const Plan& previous, const Plan& plan) {
  std::map<std::string, int> ranks;
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    ranks.emplace(plan.workers[rank], static_cast<int>(rank));
  }
  const program::StateLayout layout = program::LayoutOf(*problem.graph, previous);
  std::vector<program::HeldState> held;
  for (size_t i = 0; i < layout.size(); ++i) {
    if (ranks.contains(previous.workers[i])) {
      held.push_back({.worker = previous.workers[i], .boxes = layout[i]});
    }
  }
  std::vector<double> incoming(plan.workers.size(), 0);
  std::vector<double> outgoing(plan.workers.size(), 0);
  const double element = static_cast<double>(SizeOf(problem.graph->master_dtype()));
  for (const program::Transfer& move : program::PlanTransfers(*problem.graph, held, plan)) {
    if (move.source.empty()) {
      continue;
    }
    const int from = ranks.at(move.source);
    const int to = ranks.at(move.target);
    const comm::Link& link = problem.cluster.links.At(from, to);
    const double seconds =
        static_cast<double>(ElementCount(move.box.extent)) * element / link.bytes_per_second;
    incoming[static_cast<size_t>(to)] += seconds;
    outgoing[static_cast<size_t>(from)] += seconds;
  }
  return std::max(*std::max_element(incoming.begin(), incoming.end()),
                  *std::max_element(outgoing.begin(), outgoing.end()));
}

}  // namespace heddle::planner
