/// \file
/// Randomised: the distributed Programs of random graphs under random plans, interpreted in fp64,
/// equal the graph run on one device, and the static check accepts them. HEDDLE_TEST_SEED names
/// the first case.
#include "tests/engine_runtime/reference.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime {
namespace {

const int kCases = testing::Scaled(30, 60, 300);

// Addition in another order moves fp64 results by a few ulps a step; a wrong or missing term is far
// larger.
constexpr double kTolerance = 1e-9;
// A master near zero is compared on the scale of one update.
constexpr double kFloor = 1e-3;
// Of AdamW. With the usual 1e-8 the update of a gradient that is zero but for rounding is that
// rounding times 1e8.
constexpr double kEpsilon = 1e-3;

SampleReader RandomSamples(uint64_t seed, int64_t vocabulary) {
  return [seed, vocabulary](int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto block = Philox(StreamKey(seed, "tokens"), static_cast<uint64_t>(sample), i);
      tokens[i] = static_cast<int32_t>(block[0] % static_cast<uint64_t>(vocabulary));
      targets[i] = static_cast<int32_t>(block[1] % static_cast<uint64_t>(vocabulary));
    }
    return Status::Ok();
  };
}

int64_t VocabularyOf(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes) {
    for (const graph::TensorId input : node.inputs) {
      if (input == graph.tokens) {
        return graph.tensor(node.inputs[1]).type.shape[0];
      }
    }
  }
  return 1;
}

void CheckCase(uint64_t seed) {
  HEDDLE_TRACE_SEED(seed);
  graph::Graph graph = testing::RandomGraph(seed, DType::kF64);
  graph.optimizer.epsilon = kEpsilon;
  const program::Plan plan = testing::RandomPlan(seed, static_cast<int>(graph.segments.size()));
  const auto programs = program::LowerAll(graph, plan);
  ASSERT_TRUE(programs.ok()) << programs.status().ToString();
  const Status verified = program::Verify(graph, plan, *programs);
  ASSERT_TRUE(verified.ok()) << verified.ToString();
  const ReferenceOptions options{.steps = 2,
                                 .microbatches = plan.microbatches(),
                                 .seed = seed,
                                 .learning_rate = 1e-3,
                                 .read_sample = RandomSamples(seed, VocabularyOf(graph))};
  const auto single = RunSingleDevice(graph, options);
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  const auto distributed = RunPrograms(graph, *programs, options);
  ASSERT_TRUE(distributed.ok()) << distributed.status().ToString();
  EXPECT_LT(LargestDifference(*distributed, *single, kFloor), kTolerance);
}

TEST(ReferenceTest, DistributedProgramsEqualTheSingleDevice) {
  for (const uint64_t seed : testing::TestSeeds(kCases)) {
    CheckCase(seed);
    if (HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace heddle::runtime
