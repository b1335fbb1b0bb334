/// \file
/// Goal: who asked to be told before the optimizer changes a parameter is told about each of them,
/// in the Program's order, while all of the parameter is still as the step before left it.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/graph/models/model.h"
#include "engine/program/lowering/lower.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/executor.h"
#include "tests/support/device/fake_device.h"

namespace heddle::runtime {
namespace {

void ExpectAnnouncements(Device& device) {
  const auto graph = graph::BuildTrainingGraph({.family = graph::ModelFamily::kLlama,
                                                .vocab_size = 17,
                                                .hidden_size = 8,
                                                .intermediate_size = 12,
                                                .num_hidden_layers = 2,
                                                .num_attention_heads = 2,
                                                .num_key_value_heads = 1,
                                                .max_position_embeddings = 8,
                                                .tie_word_embeddings = true},
                                               {.microbatch_size = 1,
                                                .sequence_length = 8,
                                                .compute = DType::kBF16,
                                                .loss_scale = 1.0 / 8,
                                                .optimizer = {}});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const program::Plan plan =
      program::SingleWorkerPlan("w", static_cast<int>(graph->segments.size()), 1);
  const auto program = program::Lower(*graph, plan, 0);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  ParameterState state(*graph, device);
  ASSERT_TRUE(state.Hold(program->parameters).ok());
  ASSERT_TRUE(state.Initialize(3).ok());
  const auto digests = [&] {
    std::vector<uint64_t> all;
    for (const graph::ParameterId id : program->parameters) {
      const auto digest = state.Digest(id, state.BoxOf(id));
      EXPECT_TRUE(digest.ok()) << digest.status().ToString();
      all.push_back(*digest);
    }
    return all;
  };
  std::vector<graph::ParameterId> wanted;
  for (size_t i = program->vote_index; i < program->instructions.size(); ++i) {
    if (program->instructions[i].code == program::Code::kUpdate) {
      wanted.push_back(program->instructions[i].parameter);
    }
  }
  ASSERT_EQ(wanted.size(), program->parameters.size());

  std::vector<uint64_t> before;
  std::vector<graph::ParameterId> announced;
  Executor executor(
      {.graph = &*graph,
       .program = &*program,
       .state = &state,
       .device = &device,
       .read_sample =
           [](int64_t /*sample*/, std::span<int32_t> tokens, std::span<int32_t> targets) {
             std::ranges::fill(tokens, 5);
             std::ranges::fill(targets, 7);
             return Status::Ok();
           },
       .before_update =
           [&](graph::ParameterId id) {
             EXPECT_EQ(*state.Digest(id, state.BoxOf(id)), before[static_cast<size_t>(id)]);
             announced.push_back(id);
           },
       .seed = 1});
  for (int64_t step = 1; step <= 2; ++step) {
    before = digests();
    announced.clear();
    ASSERT_TRUE(executor.ComputeGradients(step, step - 1).ok());
    const auto outcome = executor.Vote(step);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_TRUE(announced.empty()) << "nothing changes before the vote";
    executor.Apply(step, outcome->gradient_norm, 1e-2);
    EXPECT_EQ(announced, wanted);
    const std::vector<uint64_t> after = digests();
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_NE(after[i], before[i]) << "parameter " << i;
    }
  }
}

TEST(BeforeUpdateTest, EachParameterIsAnnouncedBeforeItChanges) {
  CpuDevice processor;
  ExpectAnnouncements(processor);
  testing::FakeDevice fake({});
  ExpectAnnouncements(fake);
}

}  // namespace
}  // namespace heddle::runtime
