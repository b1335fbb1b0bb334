#include "engine/graph/builder.h"

#include "base/check.h"

namespace heddle::graph {

GraphBuilder::GraphBuilder(DType compute, int64_t batch, int64_t sequence) {
  graph_.compute = compute;
  const TensorType type{.dtype = DType::kI32, .shape = {batch, sequence}};
  graph_.tokens = AddTensor({.name = "tokens", .type = type, .kind = TensorKind::kTokens});
  graph_.targets = AddTensor({.name = "targets", .type = type, .kind = TensorKind::kTargets});
}

TensorId GraphBuilder::AddTensor(Tensor tensor) {
  HEDDLE_CHECK(names_.insert(tensor.name).second, "two tensors are named '{}'", tensor.name);
  graph_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(graph_.tensors.size()) - 1;
}

void GraphBuilder::BeginSegment(std::string name, int layer) {
  graph_.segments.push_back({.name = std::move(name), .layer = layer});
}

TensorId GraphBuilder::AddParameter(std::string name,
                                    Shape shape,
                                    Initializer initializer,
                                    bool decay) {
  const DType dtype = shape.size() >= 2 ? graph_.compute : graph_.master_dtype();
  const TensorId id = AddTensor({.name = name,
                                 .type = {.dtype = dtype, .shape = shape},
                                 .kind = TensorKind::kParameter,
                                 .parameter = static_cast<ParameterId>(graph_.parameters.size())});
  graph_.parameters.push_back({.name = std::move(name),
                               .shape = std::move(shape),
                               .initializer = initializer,
                               .decay = decay,
                               .compute = id,
                               .gradients = {}});
  return id;
}

Result<std::vector<TensorId>> GraphBuilder::Apply(std::string_view op,
                                                  std::string name,
                                                  std::vector<TensorId> inputs,
                                                  Attributes attributes) {
  HEDDLE_CHECK(!graph_.segments.empty(), "node '{}' before the first segment", name);
  const Operator* const found = FindOperator(op);
  if (found == nullptr) {
    return InvalidArgumentError("{}: no operator is named '{}'", name, op);
  }
  std::vector<TensorType> input_types;
  input_types.reserve(inputs.size());
  for (const TensorId id : inputs) {
    input_types.push_back(graph_.tensor(id).type);
  }
  auto types = found->Infer(input_types, attributes);
  if (!types.ok()) {
    return types.status().WithContext("{}", name);
  }
  const auto node = static_cast<NodeId>(graph_.nodes.size());
  std::vector<TensorId> outputs;
  for (TensorType& type : *types) {
    outputs.push_back(
        AddTensor({.name = outputs.empty() ? name : fmt::format("{}.{}", name, outputs.size()),
                   .type = std::move(type),
                   .kind = TensorKind::kActivation,
                   .producer = node}));
  }
  graph_.nodes.push_back({.op = found,
                          .attributes = std::move(attributes),
                          .inputs = std::move(inputs),
                          .outputs = outputs,
                          .segment = static_cast<int>(graph_.segments.size()) - 1,
                          .phase = Phase::kForward});
  return outputs;
}

Result<TensorId> GraphBuilder::Apply1(std::string_view op,
                                      std::string name,
                                      std::vector<TensorId> inputs,
                                      Attributes attributes) {
  HEDDLE_ASSIGN_OR_RETURN(const auto outputs,
                          Apply(op, std::move(name), std::move(inputs), std::move(attributes)));
  return outputs.front();
}

Graph GraphBuilder::Finish(TensorId loss) {
  Tensor& tensor = graph_.tensors[static_cast<size_t>(loss)];
  HEDDLE_CHECK(tensor.producer >= 0 && (tensor.type == TensorType{DType::kF64, {}}),
               "the loss '{}' is {}, not an fp64 scalar", tensor.name, ToString(tensor.type));
  tensor.kind = TensorKind::kLoss;
  graph_.loss = loss;
  return std::move(graph_);
}

}  // namespace heddle::graph
