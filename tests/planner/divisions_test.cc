/// \file
/// The divisions of few workers, and the plans of tiny problems, against enumerations of their own:
/// which are kept, in which order, and where counting ends.
#include "planner/search/divisions.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stop_token>

#include <gtest/gtest.h>

#include "planner/search/exhaustive.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::unique_ptr<Problem> ProblemOf(const SearchRequest& request) {
  auto problem = MakeProblem(request);
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

/// Least time of `left` microbatches over pipelines `from`, …: every share is tried.
double LeastTime(const std::vector<std::vector<Pace>>& pipelines, size_t from, int left) {
  if (from == pipelines.size()) {
    return left == 0 ? 0 : kInfinity;
  }
  double least = kInfinity;
  for (int share = 0; share <= left; ++share) {
    double own = share == 0 ? 0 : kInfinity;
    for (const Pace& pace : pipelines[from]) {
      own = share == 0 ? 0 : std::min(own, pace.fill + (share - 1) * pace.period);
    }
    least = std::min(least, std::max(own, LeastTime(pipelines, from + 1, left - share)));
  }
  return least;
}

/// By number of pipelines: the times of all multisets of compositions that the workers allow.
std::map<size_t, std::vector<double>> EveryTime(const Problem& problem,
                                                const WorkerClasses& classes,
                                                const PipelineTable& table) {
  double gradients = 0;
  for (const int64_t bytes : problem.table.parameter_bytes) {
    gradients += static_cast<double>(bytes);
  }
  std::map<size_t, std::vector<double>> times;
  std::vector<size_t> chosen;
  const std::function<void(size_t)> visit = [&](size_t least) {
    std::vector<size_t> used(classes.members.size(), 0);
    std::vector<std::vector<Pace>> paces;
    double reduction = 0;
    for (const size_t index : chosen) {
      double depth = 0;
      double slowest = kInfinity;
      for (size_t c = 0; c < used.size(); ++c) {
        const int count = table.compositions()[index][c];
        used[c] += static_cast<size_t>(count);
        depth += count;
        const int rank = classes.members[c].front();
        for (int other = 0; count > 0 && other < problem.workers(); ++other) {
          if (other != rank) {
            slowest = std::min(slowest, problem.cluster.links.At(rank, other).bytes_per_second);
          }
        }
      }
      // Every worker moves its part of the gradients twice.
      reduction = std::max(reduction, 2 * gradients / depth / slowest);
      paces.push_back(table.Paces(index));
    }
    for (size_t c = 0; c < used.size(); ++c) {
      if (used[c] > classes.members[c].size()) {
        return;
      }
    }
    if (!chosen.empty()) {
      const auto count = static_cast<double>(chosen.size());
      times[chosen.size()].push_back(LeastTime(paces, 0, problem.microbatches) +
                                     reduction * (count - 1) / count);
    }
    for (size_t next = least; next < table.compositions().size() &&
                              chosen.size() < static_cast<size_t>(problem.microbatches);
         ++next) {
      chosen.push_back(next);
      visit(next);
      chosen.pop_back();
    }
  };
  visit(0);
  for (auto& entry : times) {
    std::sort(entry.second.begin(), entry.second.end());
  }
  return times;
}

/// Two fast workers with slow links, two slow ones with fast links.
ClusterProfile TwoKinds() {
  ClusterProfile cluster = ClusterOf({1, 0.4, 1, 0.4});
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      cluster.links.At(from, to).bytes_per_second = from % 2 == 0 ? 2e7 : 5e7;
    }
  }
  return cluster;
}

class DivisionsTest : public testing::TestWithParam<int> {
 protected:
  const graph::Graph graph_ = LlamaGraph({.layers = 2});
  SearchRequest request_{.graph = &graph_, .cluster = TwoKinds(), .microbatches = GetParam()};
  const WorkerClasses classes_ = ExactClasses(request_.cluster);
  std::vector<WorkerCosts> costs_;

  PipelineTable TableOf(const Problem& problem) {
    return PipelineTable::Build(InputOf(problem, classes_, 1, costs_));
  }
};

TEST_P(DivisionsTest, TheBestOfEveryNumberOfPipelinesAreKept) {
  ASSERT_EQ(classes_.members.size(), 2U);
  const auto problem = ProblemOf(request_);
  const PipelineTable table = TableOf(*problem);
  const auto every = EveryTime(*problem, classes_, table);
  EXPECT_EQ(every.size(), static_cast<size_t>(std::min(4, GetParam())));
  for (const size_t keep : {size_t{1}, size_t{2}, size_t{3}, size_t{100}}) {
    std::vector<double> expected;
    for (const auto& entry : every) {
      const size_t count = std::min(keep, entry.second.size());
      expected.insert(expected.end(), entry.second.begin(),
                      entry.second.begin() + static_cast<std::ptrdiff_t>(count));
    }
    std::sort(expected.begin(), expected.end());
    const auto found = BestDivisions(*problem, classes_, table, keep);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->size(), expected.size());
    std::set<std::vector<size_t>> distinct;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR((*found)[i].seconds, expected[i], 1e-9 * expected[i]) << keep << " " << i;
      std::vector<size_t> pipelines = (*found)[i].pipelines;
      std::sort(pipelines.begin(), pipelines.end());
      EXPECT_TRUE(distinct.insert(pipelines).second);
    }
  }
}

TEST_P(DivisionsTest, MoreThanTheLimitAreNone) {
  const auto problem = ProblemOf(request_);
  const PipelineTable table = TableOf(*problem);
  int count = 0;
  for (const auto& entry : EveryTime(*problem, classes_, table)) {
    count += static_cast<int>(entry.second.size());
  }
  request_.limits.max_divisions = count;
  const auto found = BestDivisions(*ProblemOf(request_), classes_, table, 1000);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(static_cast<int>(found->size()), count);
  request_.limits.max_divisions = count - 1;
  EXPECT_FALSE(BestDivisions(*ProblemOf(request_), classes_, table, 1000).has_value());
}

TEST_P(DivisionsTest, ThereAreNoneWhereTheSearchIsToStop) {
  std::stop_source source;
  request_.stop = source.get_token();
  const auto problem = ProblemOf(request_);
  const PipelineTable table = TableOf(*problem);
  EXPECT_TRUE(BestDivisions(*problem, classes_, table, 1000).has_value());
  source.request_stop();
  EXPECT_FALSE(BestDivisions(*problem, classes_, table, 1000).has_value());
}

TEST_P(DivisionsTest, WorkersFillPipelinesInRankOrder) {
  const auto problem = ProblemOf(request_);
  const PipelineTable table = TableOf(*problem);
  const auto divisions = BestDivisions(*problem, classes_, table, 100);
  ASSERT_TRUE(divisions.has_value());
  for (const Division& division : *divisions) {
    const Draft draft = DraftOf(classes_, table, division);
    ASSERT_EQ(draft.pipelines.size(), division.pipelines.size());
    std::vector<size_t> next(classes_.members.size(), 0);
    for (size_t p = 0; p < draft.pipelines.size(); ++p) {
      const size_t index = division.pipelines[p];
      ASSERT_EQ(draft.pipelines[p].size(), table.Paces(index).size());
      std::vector<size_t> after;
      for (size_t w = 0; w < draft.pipelines[p].size(); ++w) {
        const Draft::Alternative& alternative = draft.pipelines[p][w];
        const std::vector<ClassStage>& stages = table.Stages(index, w);
        EXPECT_EQ(alternative.pace.period, table.Paces(index)[w].period);
        EXPECT_EQ(alternative.pace.fill, table.Paces(index)[w].fill);
        ASSERT_EQ(alternative.stages.size(), stages.size());
        after = next;
        for (size_t j = 0; j < stages.size(); ++j) {
          const auto c = static_cast<size_t>(stages[j].worker_class);
          EXPECT_EQ(alternative.stages[j].worker(), classes_.members[c][after[c]++]);
          EXPECT_EQ(alternative.stages[j].first_segment, stages[j].first_segment);
          EXPECT_EQ(alternative.stages[j].last_segment, stages[j].last_segment);
          EXPECT_EQ(alternative.stages[j].recompute, stages[j].recompute);
        }
      }
      next = after;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Microbatches, DivisionsTest, testing::Values(1, 2, 3, 7));

/// How many sequences of pipelines of distinct workers there are: so many microbatches and workers
/// left, and segments left of the pipeline that is being built (0: none is).
int64_t Sequences(int all_segments, int microbatches, int workers, int segments) {
  int64_t count = 0;
  if (segments > 0) {
    for (int last = 1; workers > 0 && last <= segments; ++last) {
      count += workers * (last == segments ? Sequences(all_segments, microbatches, workers - 1, 0)
                                           : Sequences(all_segments, microbatches, workers - 1,
                                                       segments - last));
    }
    return count;
  }
  for (int share = 1; share <= microbatches; ++share) {
    count += Sequences(all_segments, microbatches - share, workers, all_segments);
  }
  return microbatches == 0 ? 1 : count;
}

TEST(EveryPlanTest, AreAsManyAsThereAreAndNoneTwice) {
  const graph::Graph graph = LlamaGraph({.layers = 1});
  ASSERT_EQ(graph.segments.size(), 4U);
  for (const int workers : {1, 2, 3}) {
    for (const int microbatches : {1, 2, 4}) {
      const SearchRequest request{
          .graph = &graph,
          .cluster = ClusterOf(std::vector<double>(static_cast<size_t>(workers), 1)),
          .microbatches = microbatches};
      const auto problem = ProblemOf(request);
      const auto count = static_cast<size_t>(Sequences(4, microbatches, workers, 0));
      const std::vector<program::Plan> plans = EveryPlan(*problem, count);
      ASSERT_EQ(plans.size(), count) << workers << " workers, " << microbatches;
      std::set<std::string> distinct;
      for (const program::Plan& plan : plans) {
        EXPECT_TRUE(program::ValidatePlan(plan, 4).ok());
        EXPECT_EQ(plan.microbatches(), microbatches);
        distinct.insert(program::PlanToJson(plan));
      }
      EXPECT_EQ(distinct.size(), count);
      EXPECT_TRUE(EveryPlan(*problem, count - 1).empty());
    }
  }
}

TEST(EveryPlanTest, OnlyTinyProblemsAreTried) {
  const auto plans = [](int layers, int workers, int microbatches) {
    const graph::Graph graph = LlamaGraph({.layers = layers, .hidden = 32, .sequence = 16});
    return EveryPlan(*ProblemOf({.graph = &graph,
                                 .cluster = ClusterOf(
                                     std::vector<double>(static_cast<size_t>(workers), 1)),
                                 .microbatches = microbatches}),
                     100000)
        .size();
  };
  EXPECT_EQ(plans(5, 1, 16), 1U);  // Twelve segments.
  EXPECT_EQ(plans(5, 1, 17), 0U);
  EXPECT_EQ(plans(6, 1, 16), 0U);
  EXPECT_EQ(plans(1, 4, 1), 4U + 12 * 3 + 24 * 3 + 24);
  EXPECT_EQ(plans(1, 5, 1), 0U);
}

TEST(EveryPlanTest, LeavesOutWhatLacksTheMemoryAndRecomputesWhereItMust) {
  const graph::Graph graph = LlamaGraph({.layers = 1, .hidden = 32, .sequence = 512});
  program::Plan whole = program::SingleWorkerPlan("w0", 4, 1);
  whole.workers = {"w0", "w1"};
  const ClusterProfile cluster = ClusterOf({1, 1});
  const int64_t plain = ScorePlan(graph, whole, cluster)->peak_bytes[0];
  whole.pipelines[0].stages[0].recompute = true;
  const int64_t again = ScorePlan(graph, whole, cluster)->peak_bytes[0];
  ASSERT_LT(again, plain);
  SearchRequest request{.graph = &graph, .cluster = cluster, .microbatches = 1};
  for (const int64_t memory : {again - 1, again, plain - 1, plain}) {
    request.cluster.workers[0].memory_bytes = memory;
    const std::vector<program::Plan> plans = EveryPlan(*ProblemOf(request), 1000);
    const auto place = std::find_if(plans.begin(), plans.end(), [](const program::Plan& plan) {
      return plan.pipelines[0].stages.size() == 1 && plan.pipelines[0].stages[0].worker() == 0;
    });
    ASSERT_EQ(place != plans.end(), memory >= again) << memory;
    if (place != plans.end()) {
      EXPECT_EQ(place->pipelines[0].stages[0].recompute, memory < plain);
    }
    for (const program::Plan& plan : plans) {
      EXPECT_LE(ScorePlan(graph, plan, request.cluster)->peak_bytes[0], memory);
    }
  }
}

}  // namespace
}  // namespace heddle::planner
