// Gradients are right (central differences in fp64 over whole graphs, by the dense evaluator) and
// lie where a schedule needs them (order, segments, one gradient across a cut point, weight
// gradients by use).
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/builder.h"
#include "engine/graph/models/model.h"
#include "tests/support/graph/dense_evaluator.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::DenseTensor;
using heddle::testing::EvaluateGraph;
using heddle::testing::RandomGraph;
using heddle::testing::RandomInputs;
using heddle::testing::TestSeed;

ModelConfig SmallModel(ModelFamily family, bool tied) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = family == ModelFamily::kLlama ? 2 : 4;
  config.max_position_embeddings = 7;
  config.tie_word_embeddings = tied;
  config.dropout = family == ModelFamily::kGpt2 ? 0.2 : 0;
  return config;
}

Graph SmallGraph(ModelFamily family, bool tied) {
  auto graph = BuildTrainingGraph(
      SmallModel(family, tied),
      {.microbatch_size = 2, .sequence_length = 5, .compute = DType::kF64, .loss_scale = 0.1});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

double Loss(const Graph& forward, const std::map<TensorId, DenseTensor>& inputs) {
  return EvaluateGraph(forward, inputs)[static_cast<size_t>(forward.loss)][0];
}

Graph ForwardPart(Graph graph) {
  std::erase_if(graph.nodes, [](const Node& node) { return node.phase != Phase::kForward; });
  return graph;
}

/// Smallest relative error of central differences over a few step widths: none is right for every
/// curvature.
double GradientError(const Graph& forward,
                     std::map<TensorId, DenseTensor>& inputs,
                     TensorId parameter,
                     int64_t element,
                     double gradient) {
  double& value = inputs[parameter].values[static_cast<size_t>(element)];
  const double kept = value;
  double best = std::numeric_limits<double>::infinity();
  for (const double step : {1e-3, 1e-4, 1e-5, 1e-6}) {
    value = kept + step;
    const double above = Loss(forward, inputs);
    value = kept - step;
    const double below = Loss(forward, inputs);
    value = kept;
    const double estimate = (above - below) / (2 * step);
    best = std::min(best, std::abs(estimate - gradient) / (1e-2 + std::abs(gradient)));
  }
  return best;
}

/// Compares a few elements of every parameter's summed gradient.
void ExpectGradientsOfTheLoss(const Graph& graph, Random& random) {
  auto inputs = RandomInputs(graph, random);
  const auto values = EvaluateGraph(graph, inputs);
  const Graph forward = ForwardPart(graph);
  for (const Parameter& parameter : graph.parameters) {
    for (int sample = 0; sample < 2; ++sample) {
      const int64_t element = random.Between(0, ElementCount(parameter.shape) - 1);
      double gradient = 0;
      for (const TensorId use : parameter.gradients) {
        gradient += values[static_cast<size_t>(use)][element];
      }
      EXPECT_LT(GradientError(forward, inputs, parameter.compute, element, gradient), 1e-5)
          << parameter.name << " element " << element << " gradient " << gradient;
    }
  }
}

TEST(DifferentiateTest, ModelsGradientsAreThoseOfTheLoss) {
  Random random(TestSeed());
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    for (const bool tied : {false, true}) {
      ExpectGradientsOfTheLoss(SmallGraph(family, tied), random);
    }
  }
}

TEST(DifferentiateTest, RandomGraphsGradientsAreThoseOfTheLoss) {
  const uint64_t seed = TestSeed();
  Random random(seed);
  for (uint64_t i = 0; i < 25 && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("graph {}", seed + i));
    ExpectGradientsOfTheLoss(RandomGraph(seed + i, DType::kF64), random);
  }
}

/// All operators appear in the graphs whose gradients are checked above, but those that only shares
/// of a stage run: no model has them.
TEST(DifferentiateTest, TheCheckedGraphsHoldEveryOperator) {
  std::set<std::string_view> seen = {"add_bias", "cross_entropy_of_sums", "exp_sum", "row_max"};
  auto add = [&](const Graph& graph) {
    for (const Node& node : graph.nodes) {
      seen.insert(node.op->name());
    }
  };
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    add(SmallGraph(family, true));
  }
  for (const Operator* op : AllOperators()) {
    EXPECT_TRUE(seen.contains(op->name())) << op->name();
  }
}

/// Tensors that cross the cut point between segments `cut - 1` and `cut`, in one direction.
std::set<TensorId> Crossing(const Graph& graph, int cut, bool forward) {
  std::set<TensorId> crossing;
  for (const Node& node : graph.nodes) {
    for (const TensorId id : node.inputs) {
      const NodeId producer = graph.tensor(id).producer;
      if (producer < 0) {
        continue;
      }
      const int from = graph.node(producer).segment;
      if (forward ? from < cut && node.segment >= cut : from >= cut && node.segment < cut) {
        crossing.insert(id);
      }
    }
  }
  return crossing;
}

void ExpectStructure(const Graph& graph) {
  // Producers come first; forward by segment upwards, then backward by segment downwards.
  int segment = 0;
  bool backward = false;
  std::set<std::string> names;
  for (const Tensor& tensor : graph.tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (const TensorId id : node.inputs) {
      EXPECT_LT(graph.tensor(id).producer, static_cast<NodeId>(n));
    }
    for (const TensorId id : node.outputs) {
      EXPECT_EQ(graph.tensor(id).producer, static_cast<NodeId>(n));
    }
    if (node.phase == Phase::kForward) {
      EXPECT_FALSE(backward);
      EXPECT_GE(node.segment, segment);
    } else {
      if (!backward) {
        EXPECT_EQ(node.segment, static_cast<int>(graph.segments.size()) - 1);
      }
      backward = true;
      EXPECT_LE(node.segment, segment) << "node " << n;
    }
    segment = node.segment;
  }
  for (int cut = 1; cut < static_cast<int>(graph.segments.size()); ++cut) {
    const auto up = Crossing(graph, cut, true);
    const auto down = Crossing(graph, cut, false);
    EXPECT_EQ(up.size(), 1u) << "cut " << cut << "\n" << ToString(graph);
    EXPECT_EQ(down.size(), 1u) << "cut " << cut << "\n" << ToString(graph);
    EXPECT_EQ(graph.tensor(*up.begin()).type, graph.tensor(*down.begin()).type);
  }
}

void ExpectWeightGradients(const Graph& graph) {
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    EXPECT_FALSE(parameter.gradients.empty()) << parameter.name;
    int last_segment = -1;
    for (size_t use = 0; use < parameter.gradients.size(); ++use) {
      const Tensor& gradient = graph.tensor(parameter.gradients[use]);
      EXPECT_EQ(gradient.kind, TensorKind::kWeightGradient);
      EXPECT_EQ(gradient.parameter, static_cast<ParameterId>(p));
      EXPECT_EQ(gradient.use, static_cast<int>(use));
      EXPECT_EQ(gradient.type, (TensorType{graph.master_dtype(), parameter.shape}));
      EXPECT_EQ(graph.node(gradient.producer).phase, Phase::kWeight);
      EXPECT_GT(graph.node(gradient.producer).segment, last_segment);
      last_segment = graph.node(gradient.producer).segment;
    }
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.producer >= 0) {
      EXPECT_EQ(graph.node(tensor.producer).phase == Phase::kWeight,
                tensor.kind == TensorKind::kWeightGradient)
          << tensor.name;
    }
  }
}

TEST(DifferentiateTest, OneTensorCrossesEachCutPointEachWay) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    for (const bool tied : {false, true}) {
      ExpectStructure(SmallGraph(family, tied));
    }
  }
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 200 && !HasFailure(); ++i) {
    ExpectStructure(RandomGraph(seed + i, DType::kBF16));
  }
}

TEST(DifferentiateTest, WeightGradientsComeByUse) {
  const Graph tied = SmallGraph(ModelFamily::kLlama, true);
  ExpectWeightGradients(tied);
  ASSERT_EQ(tied.parameters[0].name, "embedding.weight");
  ASSERT_EQ(tied.parameters[0].gradients.size(), 2u);
  EXPECT_EQ(tied.node(tied.tensor(tied.parameters[0].gradients[0]).producer).op->name(),
            "embedding_weight_gradient");
  EXPECT_EQ(tied.node(tied.tensor(tied.parameters[0].gradients[1]).producer).op->name(),
            "linear_weight_gradient");
  ExpectWeightGradients(SmallGraph(ModelFamily::kGpt2, false));
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 50 && !HasFailure(); ++i) {
    ExpectWeightGradients(RandomGraph(seed + i, DType::kBF16));
  }
}

TEST(DifferentiateTest, RandomGraphsAreAFunctionOfTheSeedAndVary) {
  const uint64_t seed = TestSeed();
  EXPECT_EQ(ToString(RandomGraph(seed, DType::kF32)), ToString(RandomGraph(seed, DType::kF32)));
  std::set<std::string> texts;
  std::set<size_t> segments;
  int tied = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Graph graph = RandomGraph(seed + i, DType::kF32);
    texts.insert(ToString(graph));
    segments.insert(graph.segments.size());
    tied += graph.parameters[0].gradients.size() == 2 ? 1 : 0;
  }
  EXPECT_EQ(texts.size(), 100u);
  EXPECT_GE(segments.size(), 6u);
  EXPECT_GT(tied, 20);
  EXPECT_LT(tied, 80);
}

/// x = embedding; loss of x · tableᵀ.
struct Tiny {
  GraphBuilder builder{DType::kF32, 1, 2};
  TensorId table = -1;
  TensorId x = -1;

  Tiny() {
    builder.BeginSegment("all", -1);
    table = builder.AddParameter("table", {3, 4}, {}, true);
    x = *builder.Apply1("embedding", "x", {builder.tokens(), table});
  }
  Graph Finish(TensorId y) {
    const TensorId logits = *builder.Apply1("linear", "logits", {y, table});
    return builder.Finish(
        *builder.Apply1("cross_entropy", "loss", {logits, builder.targets()}, {{"scale", 1.0}}));
  }
};

TEST(DifferentiateTest, AUnusedParameterIsRefused) {
  Tiny tiny;
  tiny.builder.AddParameter("idle", {2}, {}, false);
  Graph graph = tiny.Finish(tiny.x);
  const Status status = Differentiate(graph);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "parameter 'idle' does not influence the loss");
}

TEST(DifferentiateTest, ANodeWithoutAGradientIsRefused) {
  Tiny tiny;
  const TensorId y = *tiny.builder.Apply1("gelu_gradient", "y", {tiny.x, tiny.x});
  Graph graph = tiny.Finish(y);
  const Status status = Differentiate(graph);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "operator 'gelu_gradient' has no gradient");
}

TEST(DifferentiateTest, AParameterReadWithoutAWeightGradientIsRefused) {
  GraphBuilder builder(DType::kF32, 1, 2);
  builder.BeginSegment("all", -1);
  const TensorId table = builder.AddParameter("table", {3, 4}, {}, true);
  const TensorId shift = builder.AddParameter("shift", {1, 2, 4}, {}, true);
  const TensorId x = *builder.Apply1("embedding", "x", {builder.tokens(), table});
  const TensorId y = *builder.Apply1("add", "y", {x, shift});
  const TensorId logits = *builder.Apply1("linear", "logits", {y, table});
  Graph graph = builder.Finish(
      *builder.Apply1("cross_entropy", "loss", {logits, builder.targets()}, {{"scale", 1.0}}));
  EXPECT_EQ(Differentiate(graph).message(),
            "'add' cannot read parameter 'shift': it has no weight gradient");
}

TEST(DifferentiateTest, DeadNodesGetNoGradient) {
  Tiny tiny;
  (void)*tiny.builder.Apply1("gelu", "dead", {tiny.x});
  Graph graph = tiny.Finish(tiny.x);
  ASSERT_TRUE(Differentiate(graph).ok());
  for (const Node& node : graph.nodes) {
    EXPECT_NE(node.op->name(), "gelu_gradient");
  }
}

TEST(DifferentiateTest, SeveralConsumersAddInDescendingOrder) {
  Tiny tiny;
  const TensorId a = *tiny.builder.Apply1("gelu", "a", {tiny.x});
  const TensorId b = *tiny.builder.Apply1("gelu", "b", {tiny.x});
  const TensorId ab = *tiny.builder.Apply1("add", "ab", {a, b});
  const TensorId c = *tiny.builder.Apply1("add", "c", {tiny.x, ab});
  Graph graph = tiny.Finish(c);
  ASSERT_TRUE(Differentiate(graph).ok());
  EXPECT_THAT(
      ToString(graph),
      ::testing::HasSubstr("all backward: x.grad.1 = gelu_gradient(c.grad, x): fp32[1, 2, 4]\n"
                           "all backward: x.grad.sum.1 = add(c.grad, x.grad.1): fp32[1, 2, 4]\n"
                           "all backward: x.grad.2 = gelu_gradient(c.grad, x): fp32[1, 2, 4]\n"
                           "all backward: x.grad = add(x.grad.sum.1, x.grad.2): fp32[1, 2, 4]\n"));
}

}  // namespace
}  // namespace heddle::graph
