/// \file
/// The single-device training program of one microbatch as a list of operators on logical tensors.
/// Forward and backward are explicit nodes, without a tape; the optimizer is given by its settings.
/// A graph is built by engine/graph/models, extended by Differentiate (builder.h) and divided over
/// workers by engine/program.
///
/// Shape legend used in every operator: B microbatch size, T sequence length, D hidden size,
/// V vocabulary, H heads, N and K a weight's output and input features.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "engine/graph/attributes.h"

namespace heddle::graph {

class Operator;

using heddle::ToString;  // The overloads below would hide those for shapes and boxes.

using TensorId = int32_t;
using NodeId = int32_t;
using ParameterId = int32_t;

enum class TensorKind : uint8_t {
  kTokens,          ///< Input: token ids, int32 [B, T]; loaded by every stage that reads them.
  kTargets,         ///< Input: next-token ids, int32 [B, T].
  kParameter,       ///< A parameter in its compute element type.
  kActivation,      ///< Output of a forward node.
  kGradient,        ///< Gradient of an activation.
  kWeightGradient,  ///< Contribution of one use to a parameter's gradient for one microbatch.
  kLoss,            ///< fp64 scalar: sum of token losses times the loss scale.
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;

  int64_t bytes() const { return ElementCount(shape) * SizeOf(dtype); }
};

/// The type as text: "fp32[4, 64, 128]".
std::string ToString(const TensorType& type);

/// Element type of masters, moments, weight gradients and norms' statistics for the compute type
/// `compute`: fp64 for fp64, otherwise fp32.
constexpr DType MasterType(DType compute) {
  return compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

struct Tensor {
  std::string
      name;  ///< Unique, for example "layers.0.attention.query" or "layers.0.attention.query.grad".
  TensorType type;
  TensorKind kind = TensorKind::kActivation;
  NodeId producer = -1;        ///< -1 for inputs and parameters.
  ParameterId parameter = -1;  ///< For kParameter and kWeightGradient.
  int use = 0;                 ///< For kWeightGradient: number of the parameter's use, from 0.
};

enum class Phase : uint8_t {
  kForward,
  kBackward,  ///< Gradients of activations.
  kWeight,    ///< Gradients of parameters; a separate phase, so that a schedule may delay them.
};

struct Node {
  const Operator* op = nullptr;
  Attributes attributes;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  int segment = 0;
  Phase phase = Phase::kForward;
};

/// The distribution of a parameter's initial values. Element e of parameter p is a function of
/// (seed, p's name, e).
struct Initializer {
  enum class Kind : uint8_t { kNormal, kOnes, kZeros } kind = Kind::kNormal;
  double standard_deviation = 0.02;
};

/// A logical parameter. Its state is the fp32 master (fp64 in an fp64 graph) and two Adam moments.
struct Parameter {
  std::string name;  ///< Heddle's name; models/names.h maps it to other formats.
  Shape shape;
  Initializer initializer;
  bool decay =
      true;  ///< Whether decoupled weight decay applies (to matrices; not to biases and norms).
  TensorId compute = -1;            ///< The tensor that nodes read.
  std::vector<TensorId> gradients;  ///< Weight gradients by use; set by Differentiate.
};

/// The part of a graph between two cut points. A stage holds whole, contiguous segments.
struct Segment {
  std::string name;  ///< Name: "embedding", "layers.0.attention", "layers.0.mlp", …, "head".
  int layer = -1;    ///< Number of the transformer layer; -1: none.
};

/// The settings of AdamW with decoupled decay (Loshchilov & Hutter 2019). The learning rate and the
/// clipping factor are given at each step.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double max_gradient_norm = 1.0;  ///< Global-norm clipping; 0: none.
  /// Runs of rows whose norms are summed apart, of a matrix; a plan may divide its optimizer's state
  /// along them (engine/program/slices.h).
  int64_t slices = 1;
};

/// A graph. Its nodes are in topological order: forward by segment, then backward and weight nodes
/// from the last segment to the first.
struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;
  std::vector<Segment> segments;
  TensorId tokens = -1;
  TensorId targets = -1;
  TensorId loss = -1;
  DType compute = DType::kF32;  ///< Element type of activations and of matrices that nodes read.
  AdamW optimizer;

  const Tensor& tensor(TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  const Parameter& parameter(ParameterId id) const { return parameters[static_cast<size_t>(id)]; }
  /// Element type of masters, moments and summed gradients: fp64 in an fp64 graph, otherwise fp32.
  DType master_dtype() const { return MasterType(compute); }
};

/// The properties that determine a node's cost and kernel, as text: "linear(fp32[4, 64, 128],
/// fp32[256, 128]){…}". Nodes with equal signatures take the same time on the same worker, so
/// attributes that only change values (`site`, `scale`, `p`, …) are left out.
std::string NodeSignature(const Graph& graph, const Node& node);

/// The graph as text with one line per node, for tests and users.
std::string ToString(const Graph& graph);

}  // namespace heddle::graph
