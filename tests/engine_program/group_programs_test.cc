// Programs of plans with groups compute what one device does: the reference interpreter runs them in
// doubles (tests/support/program/program_interpreter.h).
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/support/graph/groups.h"
#include "tests/support/graph/layouts.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/program/program_interpreter.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::program {
namespace {

using testing::GroupCase;
using testing::GroupCases;
using ::testing::HasSubstr;
using testing::RandomGraph;
using testing::SmallTrainingGraph;
using testing::TestSeed;
using testing::TestSeeds;

/// Appends a stage of new workers to the last pipeline.
void AddStage(Plan& plan, int last_segment, int layout) {
  Pipeline& pipeline = plan.pipelines.back();
  Stage stage{.first_segment = pipeline.stages.empty() ? 0 : pipeline.stages.back().last_segment,
              .last_segment = last_segment,
              .layout = layout};
  const int members = layout < 0 ? 1 : graph::MembersOf(plan.layouts[static_cast<size_t>(layout)]);
  for (int q = 0; q < members; ++q) {
    // A group's ranks are in no order.
    stage.group.insert(stage.group.begin() + q / 2, static_cast<int>(plan.workers.size()));
    plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
  }
  pipeline.stages.push_back(std::move(stage));
}

Plan EmptyPlan() {
  Plan plan;
  plan.determinism = Determinism::kRelaxed;
  return plan;
}

void AddPipeline(Plan& plan, int microbatches) {
  plan.pipelines.push_back({.first_microbatch = plan.microbatches(), .microbatches = microbatches});
}

using Programs = std::vector<Program>;

/// Why the plan's Programs are refused, or do not compute what one device does; empty: they do.
std::string Violation(const graph::Graph& graph,
                      const Plan& plan,
                      const Programs& programs,
                      uint64_t seed) {
  const Status verified = Verify(graph, plan, programs);
  if (!verified.ok()) {
    return verified.ToString();
  }
  Random random(seed);
  const testing::DenseStep step = testing::RandomStep(graph, plan.microbatches(), random);
  return Difference(graph,
                    testing::RunPrograms(graph, testing::MemberGraphs(graph, plan), programs, step),
                    testing::RunOneDevice(graph, step));
}

int Segments(const graph::Graph& graph) {
  return static_cast<int>(graph.segments.size());
}

graph::Layout RandomLayoutOfSeveral(const graph::Graph& graph, Random& random) {
  graph::Layout layout;
  while (graph::MembersOf(layout) == 1) {
    layout = testing::RandomLayout(graph, random);
  }
  return layout;
}

/// One or two pipelines of one to three stages. With one pipeline the stages have any layouts, or
/// are one worker; two lay parameters out alike.
Plan RandomPlan(const graph::Graph& graph, uint64_t seed, bool alike) {
  Random random(seed);
  Plan plan = EmptyPlan();
  const int pipelines = static_cast<int>(random.Between(1, 2));
  plan.layouts.push_back(RandomLayoutOfSeveral(graph, random));
  for (int p = 0; p < pipelines; ++p) {
    AddPipeline(plan, static_cast<int>(random.Between(1, 3)));
    std::set<int> cuts = {Segments(graph)};
    for (int64_t more = random.Between(0, 2); more > 0; --more) {
      cuts.insert(static_cast<int>(random.Between(1, Segments(graph))));
    }
    for (const int cut : cuts) {
      int layout = 0;
      if (pipelines == 1 && !alike) {
        layout = static_cast<int>(random.Between(-1, 1));
        if (layout == 1) {
          layout = static_cast<int>(plan.layouts.size());
          plan.layouts.push_back(RandomLayoutOfSeveral(graph, random));
        }
      }
      AddStage(plan, cut, layout);
      plan.pipelines.back().stages.back().recompute = random.Below(3) == 0;
    }
    std::vector<Stage>& stages = plan.pipelines.back().stages;
    stages.front().ahead = stages.size() > 1 ? static_cast<int>(random.Between(0, 1)) : 0;
  }
  return plan;
}

struct Lowered {
  Plan plan;
  Programs programs;
};

/// RandomPlan, whose layouts agree about parameters that several stages hold.
Lowered RandomLowered(const graph::Graph& graph, uint64_t seed) {
  for (const bool alike : {false, true}) {
    Plan plan = RandomPlan(graph, seed, alike);
    Result<Programs> programs = LowerAll(graph, plan);
    if (programs.ok()) {
      return {.plan = std::move(plan), .programs = *std::move(programs)};
    }
    EXPECT_FALSE(alike) << programs.status().ToString();
  }
  return {};
}

TEST(GroupProgramsTest, RandomPlansComputeWhatOneDeviceDoes) {
  std::map<graph::ExchangeForm, int> forms;
  int several_pieces = 0;
  int without_share = 0;
  for (const uint64_t seed : TestSeeds(testing::Scaled(40, 250, 2000))) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, DType::kF64);
    const auto [plan, programs] = RandomLowered(graph, seed);
    ASSERT_EQ(Violation(graph, plan, programs, seed), "")
        << Describe(plan, graph) << PlanToJson(plan);
    for (const Program& program : programs) {
      for (const graph::Exchange& exchange : program.exchanges) {
        ++forms[exchange.form];
      }
      for (const Piece& piece : program.pieces) {
        several_pieces += piece.box != HeldBox(program, graph, piece.parameter) ? 1 : 0;
      }
      without_share += program.parameters.empty() ? 1 : 0;
    }
  }
  // The plans are worth it: every form, boxes of several pieces, members without a parameter.
  EXPECT_EQ(forms.size(), 6U);
  EXPECT_GT(several_pieces, 0);
  EXPECT_GT(without_share, 0);
}

TEST(GroupProgramsTest, ModelsComputeWhatOneDeviceDoes) {
  for (const GroupCase& one : GroupCases()) {
    const graph::Graph graph = SmallTrainingGraph(one.config);
    for (const std::vector<int>& cuts : std::vector<std::vector<int>>{{6}, {3, 6}, {1, 4, 6}}) {
      for (const bool recompute : {false, true}) {
        Plan plan = EmptyPlan();
        plan.layouts.push_back(testing::LayoutOf(graph, one.config, one.parallel));
        for (int p = 0; p < 2; ++p) {
          AddPipeline(plan, 2);
          for (const int cut : p == 0 ? cuts : std::vector<int>{6}) {
            AddStage(plan, cut, 0);
            plan.pipelines.back().stages.back().recompute = recompute;
          }
        }
        const Result<Programs> programs = LowerAll(graph, plan);
        ASSERT_TRUE(programs.ok()) << programs.status().ToString();
        EXPECT_EQ(Violation(graph, plan, *programs, TestSeed()), "")
            << one.name << Describe(plan, graph);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::program
