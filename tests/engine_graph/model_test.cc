#include <gtest/gtest.h>

#include "engine/graph/models/model.h"

namespace heddle::graph {
namespace {

TEST(ModelTest, Prints) {
  ModelConfig config;
  config.num_hidden_layers = 1;
  config.tie_word_embeddings = true;
  auto graph = BuildTrainingGraph(config, {});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  printf("%s", ToString(*graph).c_str());
  config.family = ModelFamily::kGpt2;
  config.dropout = 0.1;
  graph = BuildTrainingGraph(config, {});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  printf("%s", ToString(*graph).c_str());
}

}  // namespace
}  // namespace heddle::graph
