// The models' graphs: segments, parameters, sizes, limits, and their names in Hugging Face's
// checkpoints.
#include "engine/graph/models/model.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/models/names.h"
#include "engine/graph/operator.h"

namespace heddle::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Llama() {
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  return config;
}

ModelConfig Gpt2() {
  ModelConfig config = Llama();
  config.family = ModelFamily::kGpt2;
  config.num_key_value_heads = 4;
  config.max_position_embeddings = 64;
  return config;
}

int64_t ParameterCount(const Graph& graph) {
  int64_t count = 0;
  for (const Parameter& parameter : graph.parameters) {
    count += ElementCount(parameter.shape);
  }
  return count;
}

Graph Build(const ModelConfig& config, DType compute = DType::kF32) {
  auto graph =
      BuildTrainingGraph(config, {.microbatch_size = 2, .sequence_length = 8, .compute = compute});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

TEST(ModelTest, SegmentsAreHalvesOfLayersBetweenEmbeddingAndHead) {
  std::vector<std::string> names;
  std::vector<int> layers;
  for (const Segment& segment : Build(Llama()).segments) {
    names.push_back(segment.name);
    layers.push_back(segment.layer);
  }
  EXPECT_THAT(names, ElementsAre("embedding", "layers.0.attention", "layers.0.mlp",
                                 "layers.1.attention", "layers.1.mlp", "head"));
  EXPECT_THAT(layers, ElementsAre(-1, 0, 0, 1, 1, -1));
}

TEST(ModelTest, CountsTheParametersOfKnownModels) {
  // TinyLlama-1.1B and GPT-2 small, as published.
  ModelConfig llama;
  llama.vocab_size = 32000;
  llama.hidden_size = 2048;
  llama.intermediate_size = 5632;
  llama.num_hidden_layers = 22;
  llama.num_attention_heads = 32;
  llama.num_key_value_heads = 4;
  EXPECT_EQ(ParameterCount(Build(llama)), 1100048384);
  ModelConfig gpt2;
  gpt2.family = ModelFamily::kGpt2;
  gpt2.vocab_size = 50257;
  gpt2.hidden_size = 768;
  gpt2.intermediate_size = 3072;
  gpt2.num_hidden_layers = 12;
  gpt2.num_attention_heads = 12;
  gpt2.num_key_value_heads = 12;
  gpt2.max_position_embeddings = 1024;
  gpt2.tie_word_embeddings = true;
  EXPECT_EQ(ParameterCount(Build(gpt2)), 124439808);
}

TEST(ModelTest, MatricesDecayAndComputeInTheComputeTypeVectorsDoNot) {
  for (const ModelConfig& config : {Llama(), Gpt2()}) {
    const Graph graph = Build(config, DType::kBF16);
    EXPECT_EQ(graph.master_dtype(), DType::kF32);
    for (const Parameter& parameter : graph.parameters) {
      const bool matrix = parameter.shape.size() == 2;
      EXPECT_EQ(parameter.decay, matrix) << parameter.name;
      EXPECT_EQ(graph.tensor(parameter.compute).type.dtype, matrix ? DType::kBF16 : DType::kF32)
          << parameter.name;
      EXPECT_EQ(graph.tensor(parameter.compute).name, parameter.name);
    }
  }
}

TEST(ModelTest, InitializersFollowTheFamilies) {
  for (const Parameter& parameter : Build(Gpt2()).parameters) {
    const Initializer& initializer = parameter.initializer;
    if (parameter.name.ends_with(".bias")) {
      EXPECT_EQ(initializer.kind, Initializer::Kind::kZeros) << parameter.name;
    } else if (parameter.name.ends_with(".norm.weight")) {
      EXPECT_EQ(initializer.kind, Initializer::Kind::kOnes) << parameter.name;
    } else {
      const bool residual =
          parameter.name.ends_with(".output.weight") || parameter.name.ends_with(".down.weight");
      EXPECT_EQ(initializer.kind, Initializer::Kind::kNormal) << parameter.name;
      EXPECT_DOUBLE_EQ(initializer.standard_deviation, residual ? 0.02 / std::sqrt(4.0) : 0.02)
          << parameter.name;
    }
  }
  for (const Parameter& parameter : Build(Llama()).parameters) {
    if (parameter.shape.size() == 2) {
      EXPECT_DOUBLE_EQ(parameter.initializer.standard_deviation, 0.02);
    }
  }
}

TEST(ModelTest, OptionsReachTheGraph) {
  TrainingGraphOptions options{
      .microbatch_size = 3, .sequence_length = 5, .compute = DType::kF64, .loss_scale = 0.125};
  options.optimizer.weight_decay = 0.5;
  const auto graph = BuildTrainingGraph(Llama(), options);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->tensor(graph->tokens).type, (TensorType{DType::kI32, {3, 5}}));
  EXPECT_EQ(graph->tensor(graph->loss).kind, TensorKind::kLoss);
  EXPECT_EQ(graph->node(graph->tensor(graph->loss).producer).attributes.Float("scale"), 0.125);
  EXPECT_EQ(graph->optimizer.weight_decay, 0.5);
  EXPECT_EQ(graph->master_dtype(), DType::kF64);
}

TEST(ModelTest, DropoutTrainsAndDoesNotEvaluate) {
  ModelConfig config = Gpt2();
  config.dropout = 0.1;
  auto sites = [](const Graph& graph) {
    std::vector<int64_t> found;
    for (const Node& node : graph.nodes) {
      if (node.op->name() == "dropout" && node.phase == Phase::kForward) {
        found.push_back(node.attributes.Int("site"));
      }
    }
    return found;
  };
  EXPECT_THAT(sites(Build(config)), ElementsAre(0, 1, 2, 3, 4));
  const auto evaluation = BuildEvaluationGraph(config, {.sequence_length = 8});
  ASSERT_TRUE(evaluation.ok());
  EXPECT_TRUE(sites(*evaluation).empty());
  for (const Node& node : evaluation->nodes) {
    EXPECT_EQ(node.phase, Phase::kForward);
  }
  EXPECT_EQ(ParameterCount(*evaluation), ParameterCount(Build(config)));
}

TEST(ModelTest, ValidateNamesTheKey) {
  struct Case {
    void (*change)(ModelConfig&);
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](ModelConfig& c) { c.vocab_size = 0; }, "vocab_size: expected 1 to"},
      {[](ModelConfig& c) { c.hidden_size = int64_t{1} << 40; },
       "hidden_size: expected 1 to 1048576, got"},
      {[](ModelConfig& c) { c.num_hidden_layers = -1; }, "num_hidden_layers: "},
      {[](ModelConfig& c) { c.num_attention_heads = 3; },
       "hidden_size: 16 is no multiple of num_attention_heads 3"},
      {[](ModelConfig& c) { c.num_key_value_heads = 3; },
       "num_attention_heads: 4 is no multiple of num_key_value_heads 3"},
      {[](ModelConfig& c) { c.num_attention_heads = 16; }, "hidden_size: heads of 1 elements"},
      {[](ModelConfig& c) { c.norm_epsilon = 0; }, "norm_epsilon: "},
      {[](ModelConfig& c) { c.rope_theta = NAN; }, "rope_theta: "},
      {[](ModelConfig& c) { c.initializer_range = -1; }, "initializer_range: "},
      {[](ModelConfig& c) { c.dropout = 1; }, "dropout: expected 0 <= dropout < 1, got 1"},
      {[](ModelConfig& c) { c.dropout = 0.5; }, "dropout: llama has none"},
      {[](ModelConfig& c) { c.family = ModelFamily::kGpt2; },
       "num_key_value_heads: gpt2 has as many"},
  };
  EXPECT_TRUE(ValidateModel(Llama()).ok());
  EXPECT_TRUE(ValidateModel(Gpt2()).ok());
  for (const Case& c : cases) {
    ModelConfig config = Llama();
    c.change(config);
    const Status status = ValidateModel(config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(BuildTrainingGraph(config, {}).status().message(), status.message());
  }
}

TEST(ModelTest, OptionsAreChecked) {
  auto message = [](const TrainingGraphOptions& options) {
    return BuildTrainingGraph(Gpt2(), options).status().message();
  };
  EXPECT_THAT(message({.sequence_length = 65}),
              HasSubstr("sequence_length: 65 exceeds max_position_embeddings 64"));
  EXPECT_THAT(message({.microbatch_size = 0}), HasSubstr("microbatch_size: expected 1 to"));
  EXPECT_THAT(message({.sequence_length = 8, .compute = DType::kI32}),
              HasSubstr("expected fp32, bf16 or fp64, got int32"));
  EXPECT_THAT(message({.sequence_length = 8, .loss_scale = 0}), HasSubstr("loss scale"));
}

/// Every parameter has one place of its own shape, and each of their tensors is covered exactly.
void ExpectNamesCover(const ModelConfig& config) {
  const Graph graph = Build(config);
  const auto names = HuggingFaceNames(config);
  ASSERT_EQ(names.size(), graph.parameters.size());
  std::map<std::string, std::pair<Shape, std::vector<Box>>> theirs;
  for (size_t i = 0; i < names.size(); ++i) {
    const NameMapping& mapping = names[i];
    EXPECT_EQ(mapping.name, graph.parameters[i].name);
    EXPECT_EQ(mapping.shape, graph.parameters[i].shape) << mapping.name;
    Shape extent = mapping.box.extent;
    if (mapping.transpose) {
      std::swap(extent.at(0), extent.at(1));
    }
    EXPECT_EQ(extent, mapping.shape) << mapping.name;
    EXPECT_TRUE(Contains(WholeBox(mapping.foreign_shape), mapping.box)) << mapping.name;
    auto& entry = theirs[mapping.foreign_name];
    EXPECT_TRUE(entry.second.empty() || entry.first == mapping.foreign_shape);
    for (const Box& other : entry.second) {
      EXPECT_FALSE(Intersect(other, mapping.box).has_value()) << mapping.name;
    }
    entry.first = mapping.foreign_shape;
    entry.second.push_back(mapping.box);
  }
  for (const auto& [name, entry] : theirs) {
    int64_t covered = 0;
    for (const Box& box : entry.second) {
      covered += ElementCount(box.extent);
    }
    EXPECT_EQ(covered, ElementCount(entry.first)) << name;
  }
}

TEST(NamesTest, CoverEveryParameterOnce) {
  for (ModelConfig config : {Llama(), Gpt2()}) {
    for (const bool tied : {false, true}) {
      config.tie_word_embeddings = tied;
      ExpectNamesCover(config);
    }
  }
}

NameMapping Find(const ModelConfig& config, std::string_view name) {
  for (const NameMapping& mapping : HuggingFaceNames(config)) {
    if (mapping.name == name) {
      return mapping;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(NamesTest, AreThoseOfTransformers) {
  const NameMapping key = Find(Llama(), "layers.1.attention.key.weight");
  EXPECT_EQ(key.foreign_name, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(key.foreign_shape, (Shape{8, 16}));
  EXPECT_FALSE(key.transpose);
  EXPECT_EQ(Find(Llama(), "head.weight").foreign_name, "lm_head.weight");
  const NameMapping value = Find(Gpt2(), "layers.0.attention.value.weight");
  EXPECT_EQ(value.foreign_name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(value.foreign_shape, (Shape{16, 48}));
  EXPECT_EQ(value.box, (Box{.offset = {0, 32}, .extent = {16, 16}}));
  EXPECT_TRUE(value.transpose);
  EXPECT_EQ(Find(Gpt2(), "layers.0.attention.key.bias").box, (Box{.offset = {16}, .extent = {16}}));
  const NameMapping up = Find(Gpt2(), "layers.1.mlp.up.weight");
  EXPECT_EQ(up.foreign_name, "transformer.h.1.mlp.c_fc.weight");
  EXPECT_EQ(up.foreign_shape, (Shape{16, 24}));
  EXPECT_EQ(Find(Gpt2(), "embedding.position.weight").foreign_name, "transformer.wpe.weight");
}

}  // namespace
}  // namespace heddle::graph
