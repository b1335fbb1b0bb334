// Random graphs under random plans: the lowered programs pass the static check, whose symbolic
// execution shares no code with lowering.
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/program/memory.h"
#include "engine/program/verify.h"
#include "tests/engine_program/seeds.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_plan.h"

namespace heddle::program {
namespace {

using testing::RandomGraph;
using testing::RandomPlan;
using testing::TestSeeds;

constexpr int kPairs = 400;

TEST(LowerPropertyTest, EveryPlanOfEveryGraphVerifies) {
  for (const uint64_t seed : TestSeeds(kPairs)) {
    HEDDLE_TRACE_SEED(seed);
    const graph::Graph graph = RandomGraph(seed, seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    Plan plan = RandomPlan(seed, static_cast<int>(graph.segments.size()));
    if (seed % 5 == 0) {
      plan.determinism = Determinism::kRelaxed;
    }
    const Result<std::vector<Program>> programs = LowerAll(graph, plan);
    ASSERT_TRUE(programs.ok()) << programs.status().ToString();
    const Status status = Verify(graph, plan, *programs);
    ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << Describe(plan, graph);
  }
}

}  // namespace
}  // namespace heddle::program
