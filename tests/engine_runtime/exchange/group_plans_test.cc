/// \file
/// Goal: plans with groups of workers train as one worker does: the losses of a Llama with fewer
/// key/value heads and of a GPT-2 differ by rounding alone, for equal and unequal shares, in
/// pipelines of groups and beside other pipelines, over shared memory and over TCP.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/graph/layouts.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

/// Where a pipeline is cut; in each part between, a group or one worker.
struct Cut {
  int last_segment = 0;
  bool group = true;
  bool recompute = false;
};

struct Case {
  std::string name;
  graph::ModelFamily family = graph::ModelFamily::kLlama;
  int64_t kv_heads = 4;
  heddle::testing::TensorParallel parallel;
  std::vector<std::vector<Cut>> pipelines;
};

constexpr int kAll = 6;  ///< Segments: embedding, two layers of two, head.

std::vector<Case> Cases() {
  const auto gpt2 = graph::ModelFamily::kGpt2;
  const std::vector<std::vector<Cut>> whole = {{{.last_segment = kAll}}};
  return {
      {.name = "llama2", .parallel = {.units = {4, 4}}, .pipelines = whole},
      {.name = "llama431", .kv_heads = 8, .parallel = {.units = {4, 3, 1}}, .pipelines = whole},
      {.name = "llama431Groups", .parallel = {.units = {4, 3, 1}}, .pipelines = whole},
      {.name = "gpt2of2",
       .family = gpt2,
       .kv_heads = 8,
       .parallel = {.units = {4, 4}},
       .pipelines = whole},
      {.name = "gpt2of431",
       .family = gpt2,
       .kv_heads = 8,
       .parallel = {.units = {4, 3, 1}, .vocabulary = true},
       .pipelines = whole},
      {.name = "llamaSharedKeys",
       .kv_heads = 2,
       .parallel = {.units = {3, 0, 2, 3}, .vocabulary = true, .within_groups = true},
       .pipelines = whole},
      {.name = "llamaSequence",
       .parallel = {.units = {4, 4}, .sequence = true},
       .pipelines = {{{.last_segment = 3}, {.last_segment = kAll, .recompute = true}}}},
      {.name = "llamaTwoPipelines",
       .parallel = {.units = {4, 4}},
       .pipelines = {{{.last_segment = kAll}},
                     {{.last_segment = 2, .recompute = true}, {.last_segment = kAll}}}},
      {.name = "gpt2BesideOneWorker",
       .family = gpt2,
       .kv_heads = 8,
       .parallel = {.units = {4, 3, 1}},
       .pipelines = {{{.last_segment = 3}, {.last_segment = kAll, .group = false}}}},
  };
}

graph::ModelConfig ConfigOf(const Case& one) {
  return {.family = one.family,
          .vocab_size = 97,
          .hidden_size = 32,
          .intermediate_size = 48,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = one.kv_heads,
          .max_position_embeddings = 16,
          .tie_word_embeddings = false,
          .dropout = one.family == graph::ModelFamily::kGpt2 ? 0.1 : 0};
}

graph::Graph GraphOf(const Case& one) {
  auto graph =
      graph::BuildTrainingGraph(ConfigOf(one), {.microbatch_size = 2,
                                                .sequence_length = 16,
                                                .compute = DType::kF32,
                                                .loss_scale = 1.0 / (kMicrobatches * 2 * 16),
                                                .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

program::Plan PlanOf(const Case& one, const graph::Graph& graph) {
  program::Plan plan;
  plan.generation = 1;
  plan.determinism = program::Determinism::kRelaxed;
  plan.layouts.push_back(heddle::testing::LayoutOf(graph, ConfigOf(one), one.parallel));
  const auto pipelines = static_cast<int>(one.pipelines.size());
  for (int p = 0; p < pipelines; ++p) {
    program::Pipeline& pipeline = plan.pipelines.emplace_back();
    pipeline.first_microbatch = p * kMicrobatches / pipelines;
    pipeline.microbatches = (p + 1) * kMicrobatches / pipelines - pipeline.first_microbatch;
    int first = 0;
    for (const Cut& cut : one.pipelines[static_cast<size_t>(p)]) {
      program::Stage stage{.first_segment = first,
                           .last_segment = cut.last_segment,
                           .recompute = cut.recompute,
                           .layout = cut.group ? 0 : -1};
      for (size_t i = 0; i < (cut.group ? one.parallel.units.size() : 1); ++i) {
        stage.group.insert(stage.group.begin(), static_cast<int>(plan.workers.size()));
        plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
      }
      pipeline.stages.push_back(stage);
      first = cut.last_segment;
    }
  }
  return plan;
}

TrainingOptions OnProcessor(int64_t steps, bool shm, bool slabs) {
  return {.steps = steps, .shm = shm, .slabs = slabs, .make_device = [](int /*rank*/) {
            return std::make_unique<CpuDevice>();
          }};
}

TrainingOptions OnFake(int64_t steps) {
  return {.steps = steps,
          .slabs = true,
          .make_device =
              [](int rank) {
                return std::make_unique<FakeDevice>(
                    FakeOptions{.seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank)});
              },
          .look_at =
              [](Device& device) {
                EXPECT_THAT(dynamic_cast<FakeDevice&>(device).violations(), IsEmpty());
                EXPECT_EQ(device.memory_in_use(), 0);
              }};
}

void ExpectNear(const Trained& group, const Trained& one, size_t steps) {
  ASSERT_TRUE(group.status.ok()) << group.status.ToString();
  ASSERT_EQ(group.losses.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    EXPECT_NEAR(group.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
  }
}

class GroupPlansTest : public ::testing::TestWithParam<Case> {};

TEST_P(GroupPlansTest, TrainAsOneWorkerDoes) {
  const graph::Graph graph = GraphOf(GetParam());
  const program::Plan plan = PlanOf(GetParam(), graph);
  const auto steps = heddle::testing::Scaled<int64_t>(4, 20, 20);
  const Trained one = Train(graph, program::SingleWorkerPlan("w0", kAll, kMicrobatches),
                            OnProcessor(steps, true, false));
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const bool shm : {true, false}) {
    SCOPED_TRACE(shm ? "shared memory" : "TCP");
    ExpectNear(Train(graph, plan, OnProcessor(steps, shm, shm)), one, one.losses.size());
  }
  SCOPED_TRACE("fake");
  ExpectNear(Train(graph, plan, OnFake(3)), one, 3);
}

INSTANTIATE_TEST_SUITE_P(Plans,
                         GroupPlansTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace heddle::runtime::testing
