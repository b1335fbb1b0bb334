#include "planner/search/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace heddle::planner {

using program::Plan;

namespace {

/// The transports of all pairs of a larger cluster would make the plan too large.
constexpr int kMaxWorkersWithTransports = 128;

double VoteSeconds(const ClusterProfile& cluster, const SegmentTable& table, int microbatches) {
  const int64_t bytes =
      64 + 16 * (static_cast<int64_t>(table.parameter_bytes.size()) + microbatches) /
               static_cast<int64_t>(cluster.workers.size());
  return cluster.workers.size() > 1 ? comm::AllGatherBytesSeconds(cluster.links, bytes) : 0;
}

void AddCosts(Problem& problem) {
  std::vector<size_t> sample;  // The first rank with each distinct profile.
  for (size_t rank = 0; rank < problem.cluster.workers.size(); ++rank) {
    const program::WorkerProfile& profile = problem.cluster.workers[rank];
    const auto same = std::find_if(sample.begin(), sample.end(), [&](size_t other) {
      return SameProfile(problem.cluster.workers[other], profile);
    });
    if (same == sample.end()) {
      sample.push_back(rank);
      problem.distinct.push_back(
          std::make_unique<WorkerCosts>(BuildWorkerCosts(*problem.graph, problem.table, profile)));
      problem.costs.push_back(problem.distinct.back().get());
    } else {
      problem.costs.push_back(problem.distinct[static_cast<size_t>(same - sample.begin())].get());
    }
  }
}

}  // namespace

StageShape ShapeOf(const Plan& plan, const program::Pipeline& pipeline, size_t stage) {
  const program::Stage& it = pipeline.stages[stage];
  return {.first_segment = it.first_segment,
          .last_segment = it.last_segment,
          .later_stages = static_cast<int>(pipeline.stages.size() - stage) - 1,
          .microbatches = pipeline.microbatches,
          .recompute = it.recompute,
          .pipelines = static_cast<int>(plan.pipelines.size()),
          .ahead = it.ahead,
          .first_microbatch = pipeline.first_microbatch};
}

bool StageMemory::Fits(int64_t memory_bytes, const StageShape& stage) {
  const int64_t estimate =
      EstimateStageBytes(table_, stage.first_segment, stage.last_segment, stage.in_flight(),
                         stage.microbatches, stage.recompute);
  if (estimate * 2 < memory_bytes) {
    return true;
  }
  if (!divides_optimizer_ && estimate > memory_bytes * 3) {
    return false;
  }
  return PeakBytes(stage) <= memory_bytes;
}

int64_t StageMemory::PeakBytes(const StageShape& stage) {
  const program::FootprintStage asked{
      .first_segment = stage.first_segment,
      .last_segment = stage.last_segment,
      .recompute = stage.recompute,
      .warm_up = std::min(stage.later_stages + stage.ahead, stage.microbatches),
      .first_microbatch = stage.pipelines > 1 ? stage.first_microbatch : 0,
      .microbatches = stage.microbatches,
      .pipelines = stage.pipelines};
  const auto found = known_.emplace(
      std::tuple(asked.first_segment, asked.last_segment, asked.warm_up, asked.recompute,
                 asked.pipelines, asked.first_microbatch, asked.microbatches),
      0);
  if (found.second) {
    found.first->second = footprint_.PeakBytes(asked);
  }
  return found.first->second;
}

Result<std::unique_ptr<Problem>> MakeProblem(const SearchRequest& request) {
  if (request.graph == nullptr) {
    return InvalidArgumentError("no graph to plan for");
  }
  if (request.microbatches < 1) {
    return InvalidArgumentError("a global batch of {} microbatches cannot be planned",
                                request.microbatches);
  }
  HEDDLE_RETURN_IF_ERROR(ValidateCluster(request.cluster));
  auto problem = std::make_unique<Problem>();
  if (request.workers.empty()) {
    problem->cluster = request.cluster;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(problem->cluster, SelectWorkers(request.cluster, request.workers));
  }
  if (problem->cluster.workers.empty()) {
    return InvalidArgumentError("no workers to plan for");
  }
  problem->graph = request.graph;
  problem->microbatches = request.microbatches;
  problem->determinism = request.determinism;
  problem->divides_optimizer = request.divides_optimizer;
  problem->generation = request.generation;
  problem->limits = request.limits;
  problem->stop = request.stop;
  HEDDLE_ASSIGN_OR_RETURN(problem->table, BuildSegmentTable(*request.graph));
  AddCosts(*problem);
  HEDDLE_ASSIGN_OR_RETURN(
      program::Footprint footprint,
      program::Footprint::Create(*request.graph, request.determinism, request.divides_optimizer));
  problem->memory = std::make_unique<StageMemory>(problem->table, std::move(footprint),
                                                  request.divides_optimizer);
  problem->estimate = {
      .table = &problem->table,
      .costs = problem->costs,
      .links = &problem->cluster.links,
      .vote_seconds = VoteSeconds(problem->cluster, problem->table, request.microbatches)};
  return problem;
}

int64_t ReducedBytes(const Problem& problem, graph::ParameterId parameter) {
  const auto p = static_cast<size_t>(parameter);
  const int64_t sum = problem.table.parameter_bytes[p];
  const int64_t copy = problem.divides_optimizer ? problem.table.gathered_bytes[p] : 0;
  return copy == 0 ? sum : (sum + copy) / 2;
}

Plan EmptyPlan(const Problem& problem) {
  Plan plan;
  plan.generation = problem.generation;
  plan.determinism = problem.determinism;
  plan.divides_optimizer = problem.divides_optimizer;
  const int count = problem.workers();
  for (const program::WorkerProfile& worker : problem.cluster.workers) {
    plan.workers.push_back(worker.worker);
  }
  if (count <= kMaxWorkersWithTransports) {
    plan.transports.assign(static_cast<size_t>(count),
                           std::vector<std::string>(static_cast<size_t>(count)));
    for (int from = 0; from < count; ++from) {
      for (int to = 0; to < count; ++to) {
        if (from != to) {
          plan.transports[static_cast<size_t>(from)][static_cast<size_t>(to)] =
              problem.cluster.links.At(from, to).transport;
        }
      }
    }
  }
  return plan;
}

Plan PlanOf(const Problem& problem, const Draft& draft) {
  std::vector<std::vector<Pace>> paces(draft.pipelines.size());
  for (size_t p = 0; p < draft.pipelines.size(); ++p) {
    for (const Draft::Alternative& alternative : draft.pipelines[p]) {
      paces[p].push_back(alternative.pace);
    }
  }
  const std::vector<std::span<const Pace>> spans(paces.begin(), paces.end());
  const Shares shares = BalanceShares(spans, problem.microbatches);
  std::vector<size_t> order(draft.pipelines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return shares.microbatches[a] > shares.microbatches[b];
  });
  Plan plan = EmptyPlan(problem);
  int first = 0;
  for (const size_t p : order) {
    const int share = shares.microbatches[p];
    if (share == 0) {
      continue;
    }
    const auto& alternatives = draft.pipelines[p];
    const auto best = std::min_element(alternatives.begin(), alternatives.end(),
                                       [&](const auto& a, const auto& b) {
                                         return a.pace.Seconds(share) < b.pace.Seconds(share);
                                       });
    plan.pipelines.push_back(
        {.stages = best->stages, .first_microbatch = first, .microbatches = share});
    first += share;
  }
  return plan;
}

namespace {

/// The bandwidth of the slowest link from or to a worker.
double SlowestLink(const Problem& problem, int rank) {
  double slowest = std::numeric_limits<double>::infinity();
  for (int other = 0; other < problem.workers(); ++other) {
    if (other != rank) {
      slowest = std::min({slowest, problem.cluster.links.At(rank, other).bytes_per_second,
                          problem.cluster.links.At(other, rank).bytes_per_second});
    }
  }
  return slowest;
}

/// The parts of an input that do not depend on the classes.
PipelineInput CommonInput(const Problem& problem, int pipelines) {
  PipelineInput input;
  input.table = &problem.table;
  input.microbatches = (problem.microbatches + pipelines - 1) / pipelines;
  input.max_depth = problem.limits.max_depth > 0 ? problem.limits.max_depth : 8;
  return input;
}

/// Adds to every stage the cost of reducing its gradients for each microbatch: all partial sums are
/// sent or received once.
void AddReduction(const Problem& problem, int rank, int pipelines, WorkerCosts& costs) {
  if (pipelines < 2) {
    return;
  }
  const double share = static_cast<double>(problem.microbatches) / pipelines;
  const double rate = SlowestLink(problem, rank) * share * pipelines / (2.0 * (pipelines - 1));
  double sum = 0;
  for (size_t s = 0; s < problem.table.parameters.size(); ++s) {
    for (const graph::ParameterId id : problem.table.parameters[s]) {
      sum += static_cast<double>(ReducedBytes(problem, id)) / rate;
    }
    costs.backward[s + 1] += sum;
  }
}

}  // namespace

PipelineInput InputByRank(const Problem& problem,
                          int pipelines,
                          std::vector<WorkerCosts>& rank_costs) {
  rank_costs.clear();
  for (int rank = 0; rank < problem.workers(); ++rank) {
    rank_costs.push_back(*problem.costs[static_cast<size_t>(rank)]);
    AddReduction(problem, rank, pipelines, rank_costs.back());
  }
  PipelineInput input = CommonInput(problem, pipelines);
  input.costs = &rank_costs;
  input.counts.assign(static_cast<size_t>(problem.workers()), 1);
  input.link = [&problem](int from, int to) { return problem.cluster.links.At(from, to); };
  const int share = input.microbatches;
  input.fits = [&problem, share, pipelines](int rank, int first, int last, int depth,
                                            bool recompute) {
    return problem.Fits(rank, {first, last, depth - 1, share, recompute, pipelines});
  };
  return input;
}

std::vector<program::Stage> Recut(const PipelineInput& by_rank, const std::vector<int>& order) {
  std::vector<program::Stage> stages;
  for (const ClassStage& stage : BestCuts(by_rank, order)) {
    stages.push_back({.group = {stage.worker_class},
                      .first_segment = stage.first_segment,
                      .last_segment = stage.last_segment,
                      .recompute = stage.recompute});
  }
  return stages;
}

PipelineInput InputOf(const Problem& problem,
                      const WorkerClasses& classes,
                      int pipelines,
                      std::vector<WorkerCosts>& class_costs) {
  PipelineInput input = CommonInput(problem, pipelines);
  class_costs.clear();
  for (const std::vector<int>& members : classes.members) {
    // The member of median speed represents its class.
    std::vector<int> sorted = members;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) {
      const WorkerCosts& x = *problem.costs[static_cast<size_t>(a)];
      const WorkerCosts& y = *problem.costs[static_cast<size_t>(b)];
      return x.forward.back() + x.backward.back() < y.forward.back() + y.backward.back();
    });
    const int middle = sorted[sorted.size() / 2];
    class_costs.push_back(*problem.costs[static_cast<size_t>(middle)]);
    AddReduction(problem, middle, pipelines, class_costs.back());
    input.counts.push_back(static_cast<int>(members.size()));
  }
  input.costs = &class_costs;
  input.link = [&problem, &classes](int from, int to) {
    const std::vector<int>& sources = classes.members[static_cast<size_t>(from)];
    const std::vector<int>& targets = classes.members[static_cast<size_t>(to)];
    if (from != to) {
      return problem.cluster.links.At(sources.front(), targets.front());
    }
    return sources.size() < 2 ? comm::Link{} : problem.cluster.links.At(sources[0], sources[1]);
  };
  std::vector<int> smallest;  // The member with the least memory decides.
  for (const std::vector<int>& members : classes.members) {
    smallest.push_back(*std::min_element(members.begin(), members.end(), [&](int a, int b) {
      const auto room = [&](int rank) {
        const int64_t memory = problem.cluster.workers[static_cast<size_t>(rank)].memory_bytes;
        return memory == 0 ? std::numeric_limits<int64_t>::max() : memory;
      };
      return room(a) < room(b);
    }));
  }
  const int share = input.microbatches;
  input.fits = [&problem, smallest, share, pipelines](int worker_class, int first, int last,
                                                      int depth, bool recompute) {
    return problem.Fits(smallest[static_cast<size_t>(worker_class)],
                        {first, last, depth - 1, share, recompute, pipelines});
  };
  return input;
}

}  // namespace heddle::planner
