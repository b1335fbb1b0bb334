#include "tests/support/graph/dense_evaluator.h"

#include "base/check.h"
#include "engine/graph/operator.h"
#include "tests/support/graph/dense_operators.h"

namespace heddle::testing {

std::vector<DenseTensor> Evaluate(std::string_view op,
                                  const graph::Attributes& attributes,
                                  std::span<const DenseTensor> inputs,
                                  const DenseContext& context) {
  static const auto operators = [] {
    auto all = DenseForwardOperators();
    all.merge(DenseBackwardOperators());
    return all;
  }();
  const auto it = operators.find(op);
  HEDDLE_CHECK(it != operators.end(), "the dense evaluator has no '{}'", op);
  return it->second(attributes, inputs, context);
}

std::vector<DenseTensor> EvaluateGraph(const graph::Graph& graph,
                                       const std::map<graph::TensorId, DenseTensor>& inputs,
                                       const DenseContext& context) {
  std::vector<DenseTensor> tensors(graph.tensors.size());
  for (const auto& [id, value] : inputs) {
    tensors[static_cast<size_t>(id)] = value;
  }
  for (const graph::Node& node : graph.nodes) {
    std::vector<DenseTensor> arguments;
    for (const graph::TensorId id : node.inputs) {
      arguments.push_back(tensors[static_cast<size_t>(id)]);
    }
    auto results = Evaluate(node.op->name(), node.attributes, arguments, context);
    HEDDLE_CHECK(results.size() == node.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) {
      tensors[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
    }
  }
  return tensors;
}

DenseTensor RandomTensor(const graph::TensorType& type, int64_t bound, Random& random) {
  DenseTensor tensor(type.shape);
  for (double& value : tensor.values) {
    value = type.dtype == DType::kI32 ? static_cast<double>(random.Between(0, bound - 1))
                                      : 2 * random.Uniform() - 1;
  }
  return tensor;
}

std::map<graph::TensorId, DenseTensor> RandomInputs(const graph::Graph& graph, Random& random) {
  std::map<graph::TensorId, DenseTensor> inputs;
  const int64_t vocabulary =
      graph.tensor(graph.node(graph.tensor(graph.loss).producer).inputs[0]).type.shape.back();
  for (const graph::TensorId id : {graph.tokens, graph.targets}) {
    inputs[id] = RandomTensor(graph.tensor(id).type, vocabulary, random);
  }
  for (const graph::Parameter& parameter : graph.parameters) {
    inputs[parameter.compute] = RandomTensor(graph.tensor(parameter.compute).type, 0, random);
  }
  return inputs;
}

}  // namespace heddle::testing
