#include "planner/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "engine/program/lower.h"
#include "engine/program/memory.h"

namespace heddle::planner {

using program::Plan;

namespace {

/// Pairs of a large cluster would make the plan itself large.
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

bool StageMemory::Fits(int64_t memory_bytes, int first, int last, int in_flight, bool recompute) {
  const int64_t estimate =
      EstimateStageBytes(table_, first, last, in_flight, microbatches_, recompute);
  if (estimate * 2 < memory_bytes) {
    return true;
  }
  if (estimate > memory_bytes * 3) {
    return false;
  }
  return PeakBytes(first, last, in_flight, recompute) <= memory_bytes;
}

int64_t StageMemory::PeakBytes(int first, int last, int in_flight, bool recompute) {
  const auto found = known_.emplace(std::tuple(first, last, in_flight, recompute), 0);
  int64_t& bytes = found.first->second;
  if (!found.second) {
    return bytes;
  }
  const int counted = std::min(microbatches_, std::max(4, in_flight + 2));
  Plan plan;
  plan.determinism = determinism_;
  program::Pipeline pipeline{.microbatches = counted};
  const auto add = [&](int begin, int end, bool again) {
    pipeline.stages.push_back({.worker = static_cast<int>(plan.workers.size()),
                               .first_segment = begin,
                               .last_segment = end,
                               .recompute = again});
    plan.workers.push_back(std::to_string(plan.workers.size()));
  };
  if (first > 0) {
    add(0, first, false);
  }
  const int rank = static_cast<int>(plan.workers.size());
  add(first, last, recompute);
  int begin = last;
  for (int left = in_flight - 1; left > 0; --left) {
    const int end = left == 1 ? table_.segments : begin + 1;
    add(begin, end, false);
    begin = end;
  }
  plan.pipelines.push_back(std::move(pipeline));
  const Result<program::Program> lowered = program::Lower(graph_, plan, rank);
  if (!lowered.ok()) {
    bytes = EstimateStageBytes(table_, first, last, in_flight, microbatches_, recompute);
    return bytes;
  }
  bytes = program::StateBytes(graph_, *lowered) + program::PeakSlotBytes(*lowered);
  // Further bits of the microbatch number may keep one more partial sum each.
  const int more = std::bit_width(static_cast<unsigned>(microbatches_)) -
                   std::bit_width(static_cast<unsigned>(counted));
  if (determinism_ == program::Determinism::kExact && more > 0) {
    for (const graph::ParameterId id : lowered->parameters) {
      bytes += more * table_.parameter_bytes[static_cast<size_t>(id)];
    }
  }
  return bytes;
}

int64_t Problem::MemoryOf(int rank) const {
  const int64_t limit = cluster.workers[static_cast<size_t>(rank)].memory_bytes;
  const double factor = memory_factor[static_cast<size_t>(rank)];
  return limit == 0
             ? 0
             : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(limit) * factor));
}

Result<std::unique_ptr<Problem>> MakeProblem(const PlanRequest& request) {
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
  problem->generation = request.generation;
  problem->limits = request.limits;
  HEDDLE_ASSIGN_OR_RETURN(problem->table, BuildSegmentTable(*request.graph));
  AddCosts(*problem);
  problem->memory_factor.assign(problem->cluster.workers.size(), 1.0);
  problem->memory = std::make_unique<StageMemory>(*request.graph, problem->table,
                                                  request.microbatches, request.determinism);
  problem->estimate = {
      .table = &problem->table,
      .costs = problem->costs,
      .links = &problem->cluster.links,
      .vote_seconds = VoteSeconds(problem->cluster, problem->table, request.microbatches)};
  return problem;
}

Plan EmptyPlan(const Problem& problem) {
  Plan plan;
  plan.generation = problem.generation;
  plan.determinism = problem.determinism;
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
    for (const Draft::Way& way : draft.pipelines[p]) {
      paces[p].push_back(way.pace);
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
    const auto& ways = draft.pipelines[p];
    const auto best = std::min_element(ways.begin(), ways.end(), [&](const auto& a, const auto& b) {
      return a.pace.Seconds(share) < b.pace.Seconds(share);
    });
    plan.pipelines.push_back(
        {.stages = best->stages, .first_microbatch = first, .microbatches = share});
    first += share;
  }
  return plan;
}

PipelineQuestion QuestionOf(const Problem& problem,
                            const WorkerClasses& classes,
                            std::vector<WorkerCosts>& class_costs) {
  PipelineQuestion question;
  question.table = &problem.table;
  class_costs.clear();
  for (const std::vector<int>& members : classes.members) {
    // The member of middle speed stands for its class.
    std::vector<int> sorted = members;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) {
      const WorkerCosts& x = *problem.costs[static_cast<size_t>(a)];
      const WorkerCosts& y = *problem.costs[static_cast<size_t>(b)];
      return x.forward.back() + x.backward.back() < y.forward.back() + y.backward.back();
    });
    class_costs.push_back(*problem.costs[static_cast<size_t>(sorted[sorted.size() / 2])]);
    question.counts.push_back(static_cast<int>(members.size()));
  }
  question.costs = &class_costs;
  question.link = [&problem, &classes](int from, int to) {
    const std::vector<int>& sources = classes.members[static_cast<size_t>(from)];
    const std::vector<int>& targets = classes.members[static_cast<size_t>(to)];
    if (from != to) {
      return problem.cluster.links.At(sources.front(), targets.front());
    }
    return sources.size() < 2 ? comm::Link{} : problem.cluster.links.At(sources[0], sources[1]);
  };
  question.fits = [&problem, &classes](int worker_class, int first, int last, int in_flight,
                                       bool recompute) {
    // The member with the least memory decides.
    int smallest = classes.members[static_cast<size_t>(worker_class)].front();
    for (const int member : classes.members[static_cast<size_t>(worker_class)]) {
      const int64_t memory = problem.MemoryOf(member);
      const int64_t least = problem.MemoryOf(smallest);
      if (memory != 0 && (least == 0 || memory < least)) {
        smallest = member;
      }
    }
    return problem.Fits(smallest, first, last, in_flight, recompute);
  };
  question.microbatches = problem.microbatches;
  question.max_depth = problem.limits.max_depth > 0 ? problem.limits.max_depth : 8;
  return question;
}

}  // namespace heddle::planner
