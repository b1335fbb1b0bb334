/// \file
/// Cuts and the table of pipelines against an enumeration of every cut, priced as the header says,
/// with links, fill and recomputation that decide; the linear program against its vertices.
#include "planner/search/pipelines.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "planner/linear/linear_program.h"
#include "tests/support/seed.h"

namespace heddle::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A question of random numbers, of which any may dominate.
struct Puzzle {
  SegmentTable table;
  std::vector<WorkerCosts> costs;
  std::vector<std::vector<comm::Link>> links;
  /// By class: segments that fit with and without recomputation.
  std::vector<int> most;
  std::vector<int> most_recomputed;
  PipelineInput input;

  Puzzle(Random& random, int segments, int classes) {
    table.segments = segments;
    for (auto* bytes : {&table.forward_bytes, &table.backward_bytes}) {
      for (int cut = 0; cut <= segments; ++cut) {
        bytes->push_back(static_cast<int64_t>(random.Between(0, 9)));
      }
    }
    for (int c = 0; c < classes; ++c) {
      costs.emplace_back();
      for (auto* sums : {&costs.back().forward, &costs.back().backward, &costs.back().again}) {
        sums->push_back(0);
        for (int s = 0; s < segments; ++s) {
          sums->push_back(sums->back() + static_cast<double>(random.Between(1, 9)));
        }
      }
      links.emplace_back();
      for (int to = 0; to < classes; ++to) {
        links.back().push_back({.latency_seconds = static_cast<double>(random.Between(0, 4)),
                                .bytes_per_second = random.Below(2) == 0 ? 0.5 : 4,
                                .transport = "tcp"});
      }
      most.push_back(static_cast<int>(random.Between(1, segments)));
      most_recomputed.push_back(most.back() + static_cast<int>(random.Between(0, 2)));
    }
    input.table = &table;
    input.costs = &costs;
    input.counts.assign(static_cast<size_t>(classes), 1);
    input.link = [this](int from, int to) {
      return links[static_cast<size_t>(from)][static_cast<size_t>(to)];
    };
    input.fits = [this](int worker, int first, int last, int depth, bool recompute) {
      EXPECT_EQ(depth == 1, last == table.segments);  // Stages from this one on.
      EXPECT_LE(depth, table.segments - first);
      return Fits(worker, first, last, depth, recompute);
    };
    input.microbatches = static_cast<int>(random.Between(1, 12));
  }

  /// A stage that is followed by others needs more.
  bool Fits(int worker, int first, int last, int depth, bool recompute) const {
    const auto& limit = recompute ? most_recomputed : most;
    return last - first + (depth > 2 ? 1 : 0) <= limit[static_cast<size_t>(worker)];
  }

  /// Seconds of the stages, as the header of pipelines.h states it; infinite without memory.
  double Seconds(const std::vector<ClassStage>& stages) const {
    double fill = 0;
    double period = 0;
    for (size_t j = stages.size(); j-- > 0;) {
      const ClassStage& stage = stages[j];
      const auto worker = static_cast<size_t>(stage.worker_class);
      const int depth = static_cast<int>(stages.size() - j);
      if (!Fits(stage.worker_class, stage.first_segment, stage.last_segment, depth,
                stage.recompute)) {
        return kInfinity;
      }
      const auto part = [&](const std::vector<double>& sums) {
        return sums[static_cast<size_t>(stage.last_segment)] -
               sums[static_cast<size_t>(stage.first_segment)];
      };
      const double own = part(costs[worker].forward) + part(costs[worker].backward) +
                         (stage.recompute ? part(costs[worker].again) : 0);
      fill += own;
      period = std::max(period, own);
      if (j + 1 < stages.size()) {
        const auto next = static_cast<size_t>(stages[j + 1].worker_class);
        const auto cut = static_cast<size_t>(stage.last_segment);
        const comm::Link& down = links[worker][next];
        const comm::Link& up = links[next][worker];
        const double forward =
            static_cast<double>(table.forward_bytes[cut]) / down.bytes_per_second;
        const double backward =
            static_cast<double>(table.backward_bytes[cut]) / up.bytes_per_second;
        fill += forward + backward + down.latency_seconds + up.latency_seconds;
        period = std::max({period, forward, backward, fill / depth});
      }
    }
    return fill + (input.microbatches - 1) * period;
  }

  /// Visits all cuts of the model for workers in this order; recomputation only where it must be.
  void EveryCut(const std::vector<int>& order,
                const std::function<void(const std::vector<ClassStage>&)>& visit) const {
    std::vector<ClassStage> stages;
    const std::function<void(int)> next = [&](int first) {
      if (stages.size() == order.size()) {
        if (first == table.segments) {
          visit(stages);
        }
        return;
      }
      const int worker = order[stages.size()];
      const int depth = static_cast<int>(order.size() - stages.size());
      for (int last = first + 1; last <= table.segments; ++last) {
        const bool recompute = !Fits(worker, first, last, depth, false);
        stages.push_back({.worker_class = worker,
                          .first_segment = first,
                          .last_segment = last,
                          .recompute = recompute});
        next(last);
        stages.pop_back();
      }
    };
    next(0);
  }
};

TEST(PipelinesTest, CutsAreTheFastestOfAll) {
  Random random(testing::TestSeed());
  int recomputed = 0;
  for (int i = 0; i < 400; ++i) {
    const int segments = static_cast<int>(random.Between(3, 8));
    const int stages = static_cast<int>(random.Between(1, 4));
    Puzzle puzzle(random, segments, stages);
    std::vector<int> order;
    for (int j = 0; j < stages; ++j) {
      order.insert(order.begin() + static_cast<int>(random.Between(0, j)), j);
    }
    double best = kInfinity;
    puzzle.EveryCut(order, [&](const std::vector<ClassStage>& cuts) {
      best = std::min(best, puzzle.Seconds(cuts));
    });
    const std::vector<ClassStage> found = BestCuts(puzzle.input, order);
    if (best == kInfinity) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ASSERT_EQ(found.size(), order.size());
    for (size_t j = 0; j < found.size(); ++j) {
      EXPECT_EQ(found[j].worker_class, order[j]);
      EXPECT_EQ(found[j].first_segment, j == 0 ? 0 : found[j - 1].last_segment);
      recomputed += found[j].recompute ? 1 : 0;
    }
    EXPECT_EQ(found.back().last_segment, segments);
    // Labels closer than a ten-thousandth are one.
    EXPECT_LE(puzzle.Seconds(found), best * 1.001);
  }
  EXPECT_GT(recomputed, 20);
}

/// Shallow compositions first; of each, every pace has its merit: a longer period buys a shorter
/// fill.
void ExpectFronts(const PipelineTable& table) {
  int last_depth = 0;
  for (size_t index = 0; index < table.compositions().size(); ++index) {
    const Composition& composition = table.compositions()[index];
    const int depth = composition[0] + composition[1] + composition[2];
    EXPECT_GE(depth, last_depth);
    last_depth = depth;
    const std::vector<Pace>& paces = table.Paces(index);
    for (size_t pace = 1; pace < paces.size(); ++pace) {
      EXPECT_LT(paces[pace - 1].period, paces[pace].period);
      EXPECT_GT(paces[pace - 1].fill, paces[pace].fill);
    }
  }
}

TEST(PipelinesTest, TheTableHasTheFastestPipelineOfEveryComposition) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 60; ++i) {
    Puzzle puzzle(random, static_cast<int>(random.Between(3, 6)), 3);
    puzzle.input.max_depth = static_cast<int>(random.Between(1, 3));
    const PipelineTable table = PipelineTable::Build(puzzle.input);
    size_t seen = 0;
    for (unsigned members = 1; members < 8; ++members) {
      std::vector<int> order;
      Composition composition(3);
      for (int c = 0; c < 3; ++c) {
        if ((members >> c & 1U) != 0) {
          order.push_back(c);
          composition[static_cast<size_t>(c)] = 1;
        }
      }
      if (static_cast<int>(order.size()) > puzzle.input.max_depth) {
        continue;
      }
      const int asked = puzzle.input.microbatches;
      const std::vector<int> numbers = {asked, 1, 1000};
      std::vector<double> least(numbers.size(), kInfinity);
      do {
        puzzle.EveryCut(order, [&](const std::vector<ClassStage>& cuts) {
          for (size_t n = 0; n < numbers.size(); ++n) {
            puzzle.input.microbatches = numbers[n];
            least[n] = std::min(least[n], puzzle.Seconds(cuts));
          }
        });
      } while (std::next_permutation(order.begin(), order.end()));
      puzzle.input.microbatches = asked;
      const double best = least[0];
      const auto& all = table.compositions();
      const auto place = std::find(all.begin(), all.end(), composition);
      ASSERT_EQ(place == all.end(), best == kInfinity);
      if (place == all.end()) {
        continue;
      }
      ++seen;
      const auto index = static_cast<size_t>(place - all.begin());
      std::vector<double> fastest(numbers.size(), kInfinity);
      const std::vector<Pace>& paces = table.Paces(index);
      for (size_t pace = 0; pace < paces.size(); ++pace) {
        const double seconds = paces[pace].Seconds(asked);
        EXPECT_NEAR(seconds, puzzle.Seconds(table.Stages(index, pace)), 1e-9 * seconds);
        for (size_t n = 0; n < numbers.size(); ++n) {
          fastest[n] = std::min(fastest[n], paces[pace].Seconds(numbers[n]));
        }
      }
      for (size_t n = 0; n < numbers.size(); ++n) {
        EXPECT_LE(fastest[n], least[n] * 1.001) << numbers[n] << " microbatches";
      }
    }
    ExpectFronts(table);
    EXPECT_EQ(table.compositions().size(), seen);
  }
}

TEST(PipelinesTest, CompositionsAreAllThatTheCountsAllowAsFarAsTheLimitWholeDepthsOnly) {
  Random random(testing::TestSeed());
  Puzzle puzzle(random, 9, 2);
  puzzle.input.counts = {3, 2};
  puzzle.input.fits = [](int, int, int, int, bool) { return true; };
  const std::vector<Composition> all = {{0, 1}, {1, 0}, {0, 2}, {1, 1}, {2, 0}, {1, 2},
                                        {2, 1}, {3, 0}, {2, 2}, {3, 1}, {3, 2}};
  EXPECT_EQ(PipelineTable::Build(puzzle.input).compositions(), all);
  const auto first = [&](int count) {
    EXPECT_EQ(PipelineTable::Build(puzzle.input).compositions(),
              std::vector<Composition>(all.begin(), all.begin() + count));
  };
  for (const auto& [limit, count] : std::vector<std::pair<int, int>>{
           {1, 2}, {2, 2}, {4, 2}, {5, 5}, {7, 5}, {8, 8}, {9, 8}, {10, 10}, {11, 11}}) {
    puzzle.input.max_compositions = limit;
    first(count);
  }
  for (const auto& [depth, count] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 5}, {3, 8}, {4, 10}, {5, 11}, {6, 11}}) {
    puzzle.input.max_depth = depth;
    first(count);
  }
  // No deeper than there are segments.
  Puzzle shallow(random, 3, 2);
  shallow.input.counts = {3, 2};
  shallow.input.fits = [](int, int, int, int, bool) { return true; };
  EXPECT_EQ(PipelineTable::Build(shallow.input).compositions().size(), 8U);
}

TEST(PipelinesTest, MoreWorkersThanSegmentsHaveNoCuts) {
  Random random(testing::TestSeed());
  const Puzzle puzzle(random, 2, 3);
  EXPECT_TRUE(BestCuts(puzzle.input, {0, 1, 2}).empty());
  EXPECT_TRUE(BestCuts(puzzle.input, {}).empty());
}

TEST(LinearProgramTest, TheSolutionIsTheBestVertex) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 300; ++i) {
    // Two columns, three rows: a vertex lies where two of the five bounds meet.
    std::vector<double> value;
    std::vector<std::vector<double>> matrix(3);
    std::vector<double> limit;
    for (int column = 0; column < 2; ++column) {
      value.push_back(static_cast<double>(random.Between(0, 9)));
    }
    for (std::vector<double>& row : matrix) {
      row = {static_cast<double>(random.Between(0, 3)), static_cast<double>(random.Between(0, 3))};
      limit.push_back(static_cast<double>(random.Between(0, 12)));
    }
    matrix[0] = {1, 1};  // Every column is bounded.
    std::vector<std::vector<double>> bounds = {{1, 0, 0}, {0, 1, 0}};
    for (size_t r = 0; r < 3; ++r) {
      bounds.push_back({matrix[r][0], matrix[r][1], limit[r]});
    }
    double best = 0;
    const auto feasible = [&](double x, double y) {
      bool ok = x >= -1e-9 && y >= -1e-9;
      for (size_t r = 0; r < 3; ++r) {
        ok = ok && matrix[r][0] * x + matrix[r][1] * y <= limit[r] + 1e-9;
      }
      return ok;
    };
    for (size_t a = 0; a < bounds.size(); ++a) {
      for (size_t b = a + 1; b < bounds.size(); ++b) {
        const double det = bounds[a][0] * bounds[b][1] - bounds[a][1] * bounds[b][0];
        if (det == 0) {
          continue;
        }
        const double x = (bounds[a][2] * bounds[b][1] - bounds[a][1] * bounds[b][2]) / det;
        const double y = (bounds[a][0] * bounds[b][2] - bounds[a][2] * bounds[b][0]) / det;
        if (feasible(x, y)) {
          best = std::max(best, value[0] * x + value[1] * y);
        }
      }
    }
    const std::vector<double> found = SolvePacking(value, matrix, limit);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_TRUE(feasible(found[0], found[1])) << found[0] << " " << found[1];
    EXPECT_NEAR(value[0] * found[0] + value[1] * found[1], best, 1e-9);
  }
}

}  // namespace
}  // namespace heddle::planner
