/// \file
/// The search against an enumeration of every plan, and its parts against enumerations of what they
/// decide.
#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "planner/search/pipelines.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"
#include "planner/search/shares.h"
#include "tests/planner/support.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

/// Calls `visit` with every valid plan, recomputation aside: every sequence of pipelines of
/// distinct workers in every order, every cut, every share.
class EveryPlan {
 public:
  EveryPlan(int segments, int workers, int microbatches, std::function<void(const Plan&)> visit)
      : segments_(segments),
        microbatches_(microbatches),
        visit_(std::move(visit)) {
    for (int i = 0; i < workers; ++i) {
      plan_.workers.push_back(fmt::format("w{}", i));
    }
    used_.assign(static_cast<size_t>(workers), false);
  }

  void Run() { NextPipeline(0); }

 private:
  void NextPipeline(int first) {
    if (first == microbatches_) {
      visit_(plan_);
      return;
    }
    for (int share = 1; first + share <= microbatches_; ++share) {
      plan_.pipelines.push_back({.stages = {}, .first_microbatch = first, .microbatches = share});
      NextStage(first + share, 0);
      plan_.pipelines.pop_back();
    }
  }

  void NextStage(int first, int segment) {
    if (segment == segments_) {
      NextPipeline(first);
      return;
    }
    for (size_t worker = 0; worker < used_.size(); ++worker) {
      if (used_[worker]) {
        continue;
      }
      used_[worker] = true;
      for (int last = segment + 1; last <= segments_; ++last) {
        plan_.pipelines.back().stages.push_back(
            {.group = {static_cast<int>(worker)}, .first_segment = segment, .last_segment = last});
        NextStage(first, last);
        plan_.pipelines.back().stages.pop_back();
      }
      used_[worker] = false;
    }
  }

  const int segments_;
  const int microbatches_;
  const std::function<void(const Plan&)> visit_;
  Plan plan_;
  std::vector<bool> used_;
};

struct Best {
  double seconds = std::numeric_limits<double>::infinity();
  Plan plan;
  int plans = 0;
};

Best BestOfAll(const graph::Graph& graph, const ClusterProfile& cluster, int microbatches) {
  Best best;
  const auto visit = [&](const Plan& plan) {
    ++best.plans;
    const Result<Simulation> simulation = ScorePlan(graph, plan, cluster);
    ASSERT_TRUE(simulation.ok()) << simulation.status().ToString();
    for (size_t rank = 0; rank < cluster.workers.size(); ++rank) {
      const int64_t memory = cluster.workers[rank].memory_bytes;
      if (memory != 0 && simulation->peak_bytes[rank] > memory) {
        return;
      }
    }
    if (simulation->step_seconds < best.seconds) {
      best.seconds = simulation->step_seconds;
      best.plan = plan;
    }
  };
  EveryPlan(static_cast<int>(graph.segments.size()), static_cast<int>(cluster.workers.size()),
            microbatches, visit)
      .Run();
  return best;
}

ClusterProfile RandomCluster(Random& random, int workers) {
  std::vector<double> speeds;
  for (int i = 0; i < workers; ++i) {
    speeds.push_back(0.1 + 0.9 * random.Uniform());
  }
  ClusterProfile cluster = ClusterOf(speeds);
  for (int i = 0; i < workers; ++i) {
    for (int j = 0; j < workers; ++j) {
      cluster.links.At(i, j).bytes_per_second = random.Below(2) == 0 ? 2e9 : 5e7;
    }
  }
  return cluster;
}

void CompareWithEveryPlan(const graph::Graph& graph,
                          const ClusterProfile& cluster,
                          int microbatches,
                          double slack = 1.01) {
  const Best best = BestOfAll(graph, cluster, microbatches);
  SearchRequest request{.graph = &graph, .cluster = cluster, .microbatches = microbatches};
  const Result<SearchOutcome> outcome = Search(request);
  if (best.seconds == std::numeric_limits<double>::infinity()) {
    // The enumeration knows no recomputation, so the search may still find something.
    return;
  }
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  const auto problem = MakeProblem(request);
  ASSERT_TRUE(problem.ok());
  EXPECT_LE(outcome->plan.predicted_step_seconds, best.seconds * slack)
      << "of " << best.plans << " plans, best (estimated at "
      << EstimateStepSeconds((*problem)->estimate, best.plan) << "):\n"
      << Describe(best.plan, graph) << "found:\n"
      << Explain(request, *outcome);
}

TEST(BruteForceTest, ThreeWorkers) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 32});
  for (int i = 0; i < testing::Scaled(3, 5, 10); ++i) {
    CompareWithEveryPlan(graph, RandomCluster(random, 3), static_cast<int>(random.Between(2, 5)));
  }
}

TEST(BruteForceTest, ThreeWorkersUnderMemoryLimits) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 32});
  const Result<Simulation> whole =
      ScorePlan(graph, program::SingleWorkerPlan("w0", 4, 4), ClusterOf({1}));
  ASSERT_TRUE(whole.ok());
  for (int i = 0; i < testing::Scaled(3, 5, 10); ++i) {
    ClusterProfile cluster = RandomCluster(random, 3);
    for (program::WorkerProfile& worker : cluster.workers) {
      worker.memory_bytes = static_cast<int64_t>((0.3 + random.Uniform()) *
                                                 static_cast<double>(whole->peak_bytes[0]));
    }
    // Partial sums make memory depend on the share and its alignment, which the table of pipelines
    // knows only by a mean share: under limits as tight as a few gradients the search is not exact.
    CompareWithEveryPlan(graph, cluster, 4, 1.5);
  }
}

TEST(BruteForceTest, ThreeWorkersWhereOneTermDecides) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 32});
  const std::vector<std::function<void(ClusterProfile&)>> terms = {
      [](auto& c) { c.workers[1].instruction_seconds = 1e-3; },
      [](auto& c) { c.workers[2].seconds["update"] = 5e-6; },
      [](auto& c) { c.links.At(0, 1).latency_seconds = c.links.At(2, 0).latency_seconds = 0.02; },
      [](auto& c) { c.links.At(1, 0).bytes_per_second = 1e6; },
  };
  for (const auto& term : terms) {
    ClusterProfile cluster = RandomCluster(random, 3);
    term(cluster);
    CompareWithEveryPlan(graph, cluster, 5);
  }
}

TEST(BruteForceTest, FourWorkers) {
  Random random(testing::TestSeed());
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 32});
  for (int i = 0; i < testing::Scaled(1, 1, 2); ++i) {
    CompareWithEveryPlan(graph, RandomCluster(random, 4), 4);
  }
}

TEST(BruteForceTest, CutsAreTheExactMinimax) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 200; ++i) {
    const int segments = static_cast<int>(random.Between(3, 9));
    const int stages = static_cast<int>(random.Between(1, std::min(4, segments)));
    SegmentTable table;
    table.segments = segments;
    table.forward_bytes.resize(static_cast<size_t>(segments) + 1);
    table.backward_bytes.resize(static_cast<size_t>(segments) + 1);
    std::vector<WorkerCosts> costs(static_cast<size_t>(stages));
    std::vector<int> order;
    for (WorkerCosts& cost : costs) {
      order.push_back(static_cast<int>(order.size()));
      cost.forward = {0};
      cost.backward = {0};
      for (int s = 0; s < segments; ++s) {
        cost.forward.push_back(cost.forward.back() + static_cast<double>(random.Between(1, 9)));
        cost.backward.push_back(cost.backward.back() + static_cast<double>(random.Between(1, 9)));
      }
    }
    // Unlike memory: at most so many segments a stage.
    std::vector<int> most;
    for (int j = 0; j < stages; ++j) {
      most.push_back(static_cast<int>(random.Between(1, segments)));
    }
    PipelineInput input;
    input.table = &table;
    input.costs = &costs;
    input.link = [](int, int) {
      return comm::Link{.latency_seconds = 0, .bytes_per_second = 1e300, .transport = "shm"};
    };
    input.fits = [&](int worker, int first, int last, int, bool recompute) {
      return !recompute && last - first <= most[static_cast<size_t>(worker)];
    };
    input.microbatches = 1 << 20;  // The fill does not count.
    const std::vector<ClassStage> found = BestCuts(input, order);
    double best = std::numeric_limits<double>::infinity();
    const std::function<void(int, int, double)> visit = [&](int stage, int first, double slowest) {
      if (stage == stages) {
        best = first == segments ? std::min(best, slowest) : best;
        return;
      }
      for (int last = first + 1;
           last <= std::min(segments, first + most[static_cast<size_t>(stage)]); ++last) {
        visit(stage + 1, last,
              std::max(slowest, costs[static_cast<size_t>(stage)].Stage(first, last, false)));
      }
    };
    visit(0, 0, 0);
    double slowest = found.empty() ? std::numeric_limits<double>::infinity() : 0;
    for (const ClassStage& stage : found) {
      slowest = std::max(slowest, costs[static_cast<size_t>(stage.worker_class)].Stage(
                                      stage.first_segment, stage.last_segment, false));
    }
    EXPECT_EQ(slowest, best);
  }
}

TEST(BruteForceTest, SharesAreTheExactMinimax) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 500; ++i) {
    const int microbatches = static_cast<int>(random.Between(1, 9));
    std::vector<std::vector<Pace>> alternatives(static_cast<size_t>(random.Between(1, 3)));
    for (auto& alternative : alternatives) {
      alternative.resize(static_cast<size_t>(random.Between(1, 2)));
      for (Pace& pace : alternative) {
        pace.period = static_cast<double>(random.Between(1, 8));
        pace.fill = pace.period + static_cast<double>(random.Between(0, 12));
      }
    }
    const auto seconds = [&](size_t p, int count) {
      double best = std::numeric_limits<double>::infinity();
      for (const Pace& pace : alternatives[p]) {
        best = std::min(best, pace.Seconds(count));
      }
      return best;
    };
    double best = std::numeric_limits<double>::infinity();
    const std::function<void(size_t, int, double)> visit = [&](size_t p, int left, double slowest) {
      if (p == alternatives.size()) {
        best = left == 0 ? std::min(best, slowest) : best;
        return;
      }
      for (int count = 0; count <= left; ++count) {
        visit(p + 1, left - count, std::max(slowest, seconds(p, count)));
      }
    };
    visit(0, microbatches, 0);
    const std::vector<std::span<const Pace>> spans(alternatives.begin(), alternatives.end());
    const Shares shares = BalanceShares(spans, microbatches);
    EXPECT_EQ(shares.seconds, best);
    int sum = 0;
    for (const int count : shares.microbatches) {
      sum += count;
    }
    EXPECT_EQ(sum, microbatches);
  }
}

}  // namespace
}  // namespace heddle::planner
