/// \file
/// Local moves: the very list of moves that are offered, from an enumeration of its own; what is
/// taken, at which gain, for which budget; and microbatches that go where they end first.
#include <algorithm>

#include <gtest/gtest.h>

#include "planner/search/improve.h"
#include "tests/planner/support.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

constexpr int kEndless = 1 << 20;

std::unique_ptr<Problem> ProblemOf(const graph::Graph& graph,
                                   const ClusterProfile& cluster,
                                   int microbatches) {
  auto problem = MakeProblem({.graph = &graph, .cluster = cluster, .microbatches = microbatches});
  EXPECT_TRUE(problem.ok()) << problem.status().ToString();
  return *std::move(problem);
}

/// Pipelines over workers "w0", …, each cut where it says.
Plan PlanOfPipelines(
    int workers, const std::vector<std::pair<int, std::vector<std::pair<int, int>>>>& pipelines) {
  Plan plan;
  for (int i = 0; i < workers; ++i) {
    plan.workers.push_back(fmt::format("w{}", i));
  }
  for (const auto& [microbatches, stages] : pipelines) {
    Pipeline pipeline{
        .stages = {}, .first_microbatch = plan.microbatches(), .microbatches = microbatches};
    int first = 0;
    for (const auto& [worker, last] : stages) {
      pipeline.stages.push_back({.group = {worker}, .first_segment = first, .last_segment = last});
      first = last;
    }
    plan.pipelines.push_back(pipeline);
  }
  return plan;
}

/// A move, or every plan whose stages have these workers (new cuts are another test's).
struct Expected {
  Plan plan;
  bool recut = false;
};

void Number(Plan& plan) {
  std::erase_if(plan.pipelines,
                [](const Pipeline& pipeline) { return pipeline.microbatches == 0; });
  int next = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    pipeline.first_microbatch = next;
    next += pipeline.microbatches;
  }
}

/// All moves in the order of the documentation, without limits of memory.
std::vector<Expected> EveryMove(const Plan& plan) {
  std::vector<Expected> moves;
  const auto add = [&](const std::function<void(Plan&)>& change) {
    moves.push_back({.plan = plan});
    change(moves.back().plan);
    Number(moves.back().plan);
  };
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const std::vector<Stage>& stages = plan.pipelines[p].stages;
    for (size_t j = 0; j < stages.size(); ++j) {
      places.emplace_back(p, j);
    }
    for (size_t j = 1; j < stages.size(); ++j) {
      for (const int cut : {stages[j].first_segment - 1, stages[j].first_segment + 1}) {
        if (cut > stages[j - 1].first_segment && cut < stages[j].last_segment) {
          add([&](Plan& moved) {
            moved.pipelines[p].stages[j - 1].last_segment = cut;
            moved.pipelines[p].stages[j].first_segment = cut;
          });
        }
      }
    }
  }
  for (size_t from = 0; from < plan.pipelines.size(); ++from) {
    for (size_t to = 0; to < plan.pipelines.size(); ++to) {
      for (const int count : {1, 2, 4}) {
        if (from != to && count <= plan.pipelines[from].microbatches) {
          add([&](Plan& moved) {
            moved.pipelines[from].microbatches -= count;
            moved.pipelines[to].microbatches += count;
          });
        }
      }
    }
  }
  const std::vector<int> idle = plan.IdleWorkers();
  for (size_t a = 0; a < places.size(); ++a) {
    const auto at = [](Plan& moved, const std::pair<size_t, size_t>& place) -> int& {
      return moved.pipelines[place.first].stages[place.second].group.front();
    };
    const auto twice = [&](const std::function<void(Plan&)>& change) {
      add(change);
      add(change);
      moves.back().recut = true;
    };
    for (size_t b = a + 1; b < places.size(); ++b) {
      twice([&](Plan& moved) { std::swap(at(moved, places[a]), at(moved, places[b])); });
    }
    for (const int worker : idle) {
      twice([&](Plan& moved) { at(moved, places[a]) = worker; });
    }
  }
  for (size_t p = 1; p < plan.pipelines.size(); ++p) {
    if (plan.pipelines[p - 1].microbatches != plan.pipelines[p].microbatches) {
      add([&](Plan& moved) { std::swap(moved.pipelines[p - 1], moved.pipelines[p]); });
    }
  }
  return moves;
}

/// The plans that are offered while nothing is better.
std::vector<Plan> Offered(const Problem& problem, const Plan& plan) {
  std::vector<Plan> offered;
  int budget = kEndless;
  const ScoredPlan same = Improve(
      problem, {plan, 1.0},
      [&](const Plan& moved) {
        offered.push_back(moved);
        return 1.0;
      },
      budget);
  EXPECT_EQ(same.plan.pipelines, plan.pipelines);
  EXPECT_EQ(same.seconds, 1.0);
  EXPECT_EQ(budget, kEndless - static_cast<int>(offered.size()));
  return offered;
}

bool SameWorkers(const Plan& a, const Plan& b) {
  return std::equal(
      a.pipelines.begin(), a.pipelines.end(), b.pipelines.begin(), b.pipelines.end(),
      [](const Pipeline& x, const Pipeline& y) {
        return x.microbatches == y.microbatches &&
               std::equal(x.stages.begin(), x.stages.end(), y.stages.begin(), y.stages.end(),
                          [](const Stage& s, const Stage& t) { return s.worker() == t.worker(); });
      });
}

class MovesTest : public testing::Test {
 protected:
  const graph::Graph graph_ = LlamaGraph({.layers = 2});
  const int segments_ = static_cast<int>(graph_.segments.size());
};

TEST_F(MovesTest, EveryMoveIsOfferedOnceInItsOrder) {
  const auto problem = ProblemOf(graph_, ClusterOf({1, 0.7, 0.5, 0.9, 0.3, 0.2}), 13);
  const std::vector<Plan> plans = {
      PlanOfPipelines(6, {{13, {{2, segments_}}}}),
      PlanOfPipelines(6, {{4, {{0, 1}, {5, 2}, {1, segments_}}}, {9, {{3, segments_}}}}),
      PlanOfPipelines(6, {{1, {{4, segments_}}},
                          {1, {{3, segments_}}},
                          {2, {{1, 3}, {0, segments_}}},
                          {9, {{2, 5}, {5, segments_}}}}),
  };
  for (const Plan& plan : plans) {
    ASSERT_TRUE(program::ValidatePlan(plan, segments_).ok());
    const std::vector<Expected> expected = EveryMove(plan);
    const std::vector<Plan> offered = Offered(*problem, plan);
    ASSERT_EQ(offered.size(), expected.size());
    for (size_t i = 0; i < offered.size(); ++i) {
      EXPECT_TRUE(program::ValidatePlan(offered[i], segments_).ok());
      if (expected[i].recut) {
        EXPECT_TRUE(SameWorkers(offered[i], expected[i].plan)) << i;
        // As good for its workers as any cut by a segment more or less.
      } else {
        EXPECT_EQ(offered[i].pipelines, expected[i].plan.pipelines) << i;
      }
    }
  }
}

TEST_F(MovesTest, NewCutsSuitTheNewWorkers) {
  // A fast worker and one of a tenth of its speed change places: the cut follows.
  const auto problem = ProblemOf(graph_, ClusterOf({1, 0.1, 0.1}), 8);
  const Plan plan = PlanOfPipelines(3, {{8, {{0, segments_ - 1}, {1, segments_}}}});
  const std::vector<Plan> offered = Offered(*problem, plan);
  const auto slowest = [&](const Plan& moved) {
    double most = 0;
    for (const Stage& stage : moved.pipelines[0].stages) {
      most = std::max(most, problem->costs[static_cast<size_t>(stage.worker())]->Stage(
                                stage.first_segment, stage.last_segment, false));
    }
    return most;
  };
  int exchanged = 0;
  for (size_t i = 1; i < offered.size(); ++i) {
    if (offered[i].pipelines[0].stages[0].worker() == 1 &&
        SameWorkers(offered[i], offered[i - 1])) {
      ++exchanged;
      EXPECT_LT(slowest(offered[i]), slowest(offered[i - 1]));
      for (int cut = 1; cut < segments_; ++cut) {
        Plan other = offered[i];
        other.pipelines[0].stages[0].last_segment = cut;
        other.pipelines[0].stages[1].first_segment = cut;
        EXPECT_LE(slowest(offered[i]), slowest(other) * 1.02);
      }
    }
  }
  EXPECT_GE(exchanged, 1);
}

TEST_F(MovesTest, AMoveIsTakenFromAGainOfAMillionth) {
  const auto problem = ProblemOf(graph_, ClusterOf({1, 1}), 4);
  const Plan plan = PlanOfPipelines(2, {{4, {{0, 2}, {1, segments_}}}});
  const auto after = [&](double first) {
    int budget = kEndless;
    int asked = 0;
    return Improve(
        *problem, {plan, 1.0}, [&](const Plan&) { return asked++ == 0 ? first : 2.0; }, budget);
  };
  EXPECT_EQ(after(1.0).plan.pipelines, plan.pipelines);
  EXPECT_EQ(after(1 - 0.9e-6).plan.pipelines, plan.pipelines);
  EXPECT_EQ(after(1 - 0.9e-6).seconds, 1.0);
  const ScoredPlan taken = after(1 - 1.1e-6);
  EXPECT_EQ(taken.plan.pipelines, EveryMove(plan).front().plan.pipelines);
  EXPECT_EQ(taken.seconds, 1 - 1.1e-6);
}

TEST_F(MovesTest, EndsWhereNoMoveHelpsOrTheBudgetDoes) {
  const auto problem = ProblemOf(graph_, ClusterOf({1, 1, 1}), 16);
  const Plan plan = PlanOfPipelines(3, {{1, {{0, 1}, {1, segments_}}}, {15, {{2, segments_}}}});
  // Best: a cut before the last segment and nine microbatches for the first pipeline.
  const auto distance = [&](const Plan& moved) {
    double sum = 1;
    for (const Pipeline& pipeline : moved.pipelines) {
      if (pipeline.stages.size() == 2) {
        sum += std::abs(pipeline.stages[0].last_segment - (segments_ - 1)) +
               std::abs(pipeline.microbatches - 9);
      }
    }
    return moved.pipelines.size() == 2 ? sum : 100;
  };
  int budget = kEndless;
  const ScoredPlan best = Improve(*problem, {plan, distance(plan)}, distance, budget);
  EXPECT_EQ(best.seconds, 1);
  EXPECT_EQ(distance(best.plan), 1);
  const int needed = kEndless - budget;
  double before = distance(plan) + 1;
  for (int given = 0; given <= needed + 1; ++given) {
    budget = given;
    int asked = 0;
    const ScoredPlan found = Improve(
        *problem, {plan, distance(plan)},
        [&](const Plan& moved) {
          ++asked;
          return distance(moved);
        },
        budget);
    EXPECT_EQ(asked, std::min(given, needed));
    EXPECT_EQ(budget, given - asked);
    EXPECT_EQ(found.seconds, distance(found.plan));
    EXPECT_LE(found.seconds, before);  // More budget is no worse.
    before = found.seconds;
  }
  EXPECT_EQ(before, 1);
}

TEST_F(MovesTest, PlansOfManyPipelinesStayAsTheyAre) {
  for (const int count : {16, 17}) {
    const auto problem =
        ProblemOf(graph_, ClusterOf(std::vector<double>(static_cast<size_t>(count), 1)), 2 * count);
    std::vector<std::pair<int, std::vector<std::pair<int, int>>>> pipelines;
    for (int p = 0; p < count; ++p) {
      pipelines.push_back({2, {{p, segments_}}});
    }
    EXPECT_EQ(Offered(*problem, PlanOfPipelines(count, pipelines)).empty(), count == 17);
  }
}

TEST_F(MovesTest, WhatBreaksAMemoryLimitIsNotOffered) {
  ClusterProfile cluster = ClusterOf({1, 0.7, 0.5, 0.9});
  const Plan plan = PlanOfPipelines(4, {{5, {{0, 3}, {1, segments_}}}, {4, {{2, segments_}}}});
  const auto peak = [&](const Plan& moved, size_t rank) {
    return ScorePlan(graph_, moved, cluster)->peak_bytes[rank];
  };
  for (const size_t tight : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
    cluster = ClusterOf({1, 0.7, 0.5, 0.9});
    // What it needs in the plan, or a little.
    cluster.workers[tight].memory_bytes = std::max(peak(plan, tight), peak(plan, 0) / 2);
    const auto problem = ProblemOf(graph_, cluster, 9);
    const std::vector<Plan> offered = Offered(*problem, plan);
    std::vector<Plan> fitting;
    for (const Expected& move : EveryMove(plan)) {
      if (!move.recut && peak(move.plan, tight) <= cluster.workers[tight].memory_bytes * 8 / 10) {
        fitting.push_back(move.plan);
      }
    }
    EXPECT_FALSE(fitting.empty());
    EXPECT_LT(offered.size(), EveryMove(plan).size());
    for (const Plan& moved : offered) {
      // Partial sums of ranges that are not aligned are estimated.
      EXPECT_LE(peak(moved, tight), cluster.workers[tight].memory_bytes * 11 / 10);
    }
    for (const Plan& move : fitting) {
      EXPECT_TRUE(std::any_of(offered.begin(), offered.end(),
                              [&](const Plan& moved) { return moved.pipelines == move.pipelines; }))
          << "worker " << tight << "\n"
          << program::Describe(move, graph_);
    }
  }
}

TEST_F(MovesTest, NoSingleMoveMakesTheFoundPlanFaster) {
  for (const bool folding : {false, true}) {
    // Five workers: more than are tried out exhaustively. Folding is where estimates are worst.
    SearchRequest request{
        .graph = &graph_, .cluster = ClusterOf({1, 0.7, 0.5, 0.4, 0.3}, 5e7), .microbatches = 9};
    for (program::WorkerProfile& worker : request.cluster.workers) {
      worker.seconds["fold"] = folding ? 2e-7 : 1e-9;
    }
    request.limits.simulated_instructions = int64_t{1} << 40;
    const Result<Plan> found = FindPlan(request);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    const auto problem = ProblemOf(graph_, request.cluster, 9);
    for (const Expected& move : EveryMove(*found)) {
      Plan moved = move.plan;
      GiveSlack(*problem, 2, moved);
      const auto simulation = ScorePlan(graph_, moved, request.cluster);
      ASSERT_TRUE(simulation.ok());
      EXPECT_LE(found->predicted_step_seconds, simulation->step_seconds * (1 + 2e-6))
          << program::Describe(moved, graph_);
    }
  }
}

TEST_F(MovesTest, MicrobatchesThatLackMemoryGoWhereTheyEndFirst) {
  // Three pipelines of eight; the first worker has room for the partial sums of three. Another two
  // stages' pipeline pays its fill.
  const Plan plan = PlanOfPipelines(
      4, {{8, {{0, segments_}}}, {8, {{1, segments_}}}, {8, {{2, 3}, {3, segments_}}}});
  const auto free = ProblemOf(graph_, ClusterOf({1, 1, 1, 1}), 24);
  StageShape shape = ShapeOf(plan, plan.pipelines[0], 0);
  shape.microbatches = 3;
  const int64_t three = free->memory->PeakBytes(shape);
  for (const std::vector<double>& speeds : std::vector<std::vector<double>>{
           {1, 1, 1, 1}, {1, 1, 0.5, 0.5}, {1, 0.5, 1, 1}, {1, 0.5, 0.1, 1}, {1, 0.6, 1, 0.5}}) {
    ClusterProfile cluster = ClusterOf(speeds);
    cluster.workers[0].memory_bytes = three;
    const auto problem = ProblemOf(graph_, cluster, 24);
    const std::optional<Plan> repaired = RepairShares(*problem, plan);
    ASSERT_TRUE(repaired.has_value());
    ASSERT_EQ(repaired->pipelines.size(), 3U);
    EXPECT_TRUE(program::ValidatePlan(*repaired, segments_).ok());
    EXPECT_EQ(repaired->microbatches(), 24);
    EXPECT_EQ(repaired->pipelines[0].microbatches, 3);
    // One by one by the time of the slowest stage and the fill.
    const auto stage = [&](size_t rank, int first, int last) {
      const WorkerCosts costs = BuildWorkerCosts(graph_, problem->table, cluster.workers[rank]);
      return costs.Stage(first, last, false);
    };
    const double alone = stage(1, 0, segments_);
    const double first = stage(2, 0, 3);
    const double second = stage(3, 3, segments_);
    int one = 8;
    int two = 8;
    for (int left = 5; left > 0; --left) {
      const double with_one = alone * (one + 1);
      const double with_two = first + second + two * std::max(first, second);
      ++(with_one <= with_two ? one : two);
    }
    EXPECT_EQ(repaired->pipelines[1].microbatches, one);
    EXPECT_EQ(repaired->pipelines[2].microbatches, two);
  }
  // A worker with room for none leaves its pipeline.
  ClusterProfile poor = ClusterOf({1, 1, 1, 1});
  poor.workers[0].memory_bytes = 1000;
  const std::optional<Plan> without = RepairShares(*ProblemOf(graph_, poor, 24), plan);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(without->pipelines.size(), 2U);
  EXPECT_EQ(without->microbatches(), 24);
  EXPECT_TRUE(program::ValidatePlan(*without, segments_).ok());
}

}  // namespace
}  // namespace heddle::planner
