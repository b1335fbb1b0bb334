#include "tests/engine_runtime/device/check_models.h"

#include <gtest/gtest.h>

#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

int64_t LargeLength() {
  return Size(16, 1024);
}

int64_t LargeMicrobatch() {
  return Size(2, 8);
}

}  // namespace

graph::Graph Built(const graph::ModelConfig& config,
                   DType compute,
                   int64_t microbatch_size,
                   int64_t length,
                   int microbatches) {
  const auto graph = graph::BuildTrainingGraph(
      config, {.microbatch_size = microbatch_size,
               .sequence_length = length,
               .compute = compute,
               .loss_scale = 1.0 / static_cast<double>(microbatches * microbatch_size * length),
               .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *graph;
}

graph::Graph LargeModel(DType compute, int microbatches) {
  const graph::ModelConfig config{.family = graph::ModelFamily::kLlama,
                                  .vocab_size = Size(97, 32000),
                                  .hidden_size = Size(32, 768),
                                  .intermediate_size = Size(48, 2048),
                                  .num_hidden_layers = LargeLayers(),
                                  .num_attention_heads = Size(4, 12),
                                  .num_key_value_heads = Size(2, 12),
                                  .max_position_embeddings = LargeLength()};
  return Built(config, compute, LargeMicrobatch(), LargeLength(), microbatches);
}

int LargeLayers() {
  return static_cast<int>(Size(3, 12));
}

int LargeSegments() {
  return 2 * LargeLayers() + 2;
}

int64_t LargeTokens() {
  return LargeMicrobatch() * LargeLength();
}

}  // namespace heddle::runtime::testing
