#include <map>
#include <utility>

#include <fmt/format.h>

#include "engine/graph/builder.h"
#include "engine/graph/gradient.h"

namespace heddle::graph {
namespace {

/// Visits forward nodes from last to first. When a node is visited, all consumers of its outputs
/// have contributed, because the list respects inputs. A second contribution to a tensor is added
/// at once, while its consumer is visited, so new nodes stay in the order of the segments.
class Differentiator final : public GradientBuilder {
 public:
  explicit Differentiator(Graph& graph)
      : graph_(graph),
        forward_nodes_(static_cast<NodeId>(graph.nodes.size())) {}

  Status Run();

  const Node& node() const override { return node_; }
  const TensorType& type(TensorId tensor) const override { return graph_.tensor(tensor).type; }
  std::optional<TensorId> OutputGradient(int i) const override { return GradientOf(output(i)); }
  bool Wanted(int i) const override { return wanted_[static_cast<size_t>(input(i))]; }
  Result<std::vector<TensorId>> Apply(std::string_view op,
                                      std::vector<TensorId> inputs,
                                      Attributes attributes,
                                      Phase phase) override;
  Status Contribute(int i, TensorId gradient) override;

 private:
  std::optional<TensorId> GradientOf(TensorId tensor) const;
  void MarkWanted();
  void Rename(TensorId tensor, std::string name);
  Status NumberUses();

  Graph& graph_;
  const NodeId forward_nodes_;
  Node node_;  ///< A copy: the node list grows while its gradient is built.
  NodeId node_id_ = -1;
  std::vector<bool> wanted_;               ///< By forward tensor: some parameter influences it.
  std::map<TensorId, TensorId> gradient_;  ///< Of activations, by forward tensor.
  std::map<TensorId, int> contributions_;
  /// Weight gradients by (parameter, forward node, input), so in the order of the uses.
  std::map<std::pair<ParameterId, std::pair<NodeId, int>>, TensorId> uses_;
};

std::optional<TensorId> Differentiator::GradientOf(TensorId tensor) const {
  const auto it = gradient_.find(tensor);
  return it == gradient_.end() ? std::nullopt : std::optional(it->second);
}

void Differentiator::MarkWanted() {
  wanted_.assign(graph_.tensors.size(), false);
  for (const Parameter& parameter : graph_.parameters) {
    wanted_[static_cast<size_t>(parameter.compute)] = true;
  }
  for (const Node& node : graph_.nodes) {
    bool any = false;
    for (const TensorId id : node.inputs) {
      any = any || wanted_[static_cast<size_t>(id)];
    }
    for (const TensorId id : node.outputs) {
      wanted_[static_cast<size_t>(id)] = any;
    }
  }
}

Result<std::vector<TensorId>> Differentiator::Apply(std::string_view op,
                                                    std::vector<TensorId> inputs,
                                                    Attributes attributes,
                                                    Phase phase) {
  const Operator* const found = FindOperator(op);
  if (found == nullptr) {
    return InternalError("gradient of '{}': no operator is named '{}'", node_.op->name(), op);
  }
  std::vector<TensorType> input_types;
  input_types.reserve(inputs.size());
  for (const TensorId id : inputs) {
    input_types.push_back(type(id));
  }
  auto types = found->Infer(input_types, attributes);
  if (!types.ok()) {
    return types.status().WithContext("gradient of '{}'", graph_.tensor(output(0)).name);
  }
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  std::vector<TensorId> outputs;
  for (TensorType& type : *types) {
    outputs.push_back(static_cast<TensorId>(graph_.tensors.size()));
    graph_.tensors.push_back({.name = fmt::format("gradient.{}.{}", id, outputs.size() - 1),
                              .type = std::move(type),
                              .kind = TensorKind::kGradient,
                              .producer = id});
  }
  graph_.nodes.push_back({.op = found,
                          .attributes = std::move(attributes),
                          .inputs = std::move(inputs),
                          .outputs = outputs,
                          .segment = node_.segment,
                          .phase = phase});
  return outputs;
}

Status Differentiator::Contribute(int i, TensorId gradient) {
  const TensorId target = input(i);
  const Tensor& tensor = graph_.tensor(target);
  const bool is_parameter = tensor.kind == TensorKind::kParameter;
  const TensorType expected{.dtype = is_parameter ? graph_.master_dtype() : tensor.type.dtype,
                            .shape = tensor.type.shape};
  if (type(gradient) != expected) {
    return InternalError("gradient of '{}' by '{}' is {}, expected {}", tensor.name,
                         node_.op->name(), ToString(type(gradient)), ToString(expected));
  }
  if (is_parameter) {
    const NodeId producer = graph_.tensor(gradient).producer;
    if (producer < forward_nodes_ || graph_.node(producer).phase != Phase::kWeight) {
      return InvalidArgumentError("'{}' cannot read parameter '{}': it has no weight gradient",
                                  node_.op->name(), tensor.name);
    }
    uses_[{tensor.parameter, {node_id_, i}}] = gradient;
    return Status::Ok();
  }
  const int count = contributions_[target]++;
  TensorId sum = gradient;
  if (count == 0) {
    Rename(gradient, fmt::format("{}.grad", tensor.name));
  } else {
    // The newest sum has the plain name; what went into it is numbered.
    const TensorId before = gradient_[target];
    Rename(gradient, fmt::format("{}.grad.{}", tensor.name, count));
    HEDDLE_ASSIGN_OR_RETURN(const auto added,
                            Apply("add", {before, gradient}, {}, Phase::kBackward));
    sum = added.front();
    const std::string name = fmt::format("{}.grad", graph_.tensor(target).name);
    if (graph_.tensor(before).name == name) {
      graph_.tensors[static_cast<size_t>(before)].name =
          fmt::format("{}.{}{}", name, count == 1 ? "" : "sum.", count - 1);
    }
    Rename(sum, name);
  }
  gradient_[target] = sum;
  return Status::Ok();
}

/// A gradient that is handed on unchanged (by `add`) keeps the name it got first.
void Differentiator::Rename(TensorId tensor, std::string name) {
  std::string& current = graph_.tensors[static_cast<size_t>(tensor)].name;
  if (current.starts_with("gradient.")) {
    current = std::move(name);
  }
}

Status Differentiator::NumberUses() {
  for (const auto& [use, gradient] : uses_) {
    Parameter& parameter = graph_.parameters[static_cast<size_t>(use.first)];
    Tensor& tensor = graph_.tensors[static_cast<size_t>(gradient)];
    tensor.kind = TensorKind::kWeightGradient;
    tensor.parameter = use.first;
    tensor.use = static_cast<int>(parameter.gradients.size());
    tensor.name = fmt::format("{}.grad.{}", parameter.name, tensor.use);
    parameter.gradients.push_back(gradient);
  }
  for (const Parameter& parameter : graph_.parameters) {
    if (parameter.gradients.empty()) {
      return InvalidArgumentError("parameter '{}' does not influence the loss", parameter.name);
    }
  }
  return Status::Ok();
}

Status Differentiator::Run() {
  MarkWanted();
  for (node_id_ = forward_nodes_ - 1; node_id_ >= 0; --node_id_) {
    node_ = graph_.node(node_id_);
    bool influences = false;
    bool wanted = false;
    for (const TensorId id : node_.outputs) {
      influences = influences || id == graph_.loss || GradientOf(id).has_value();
    }
    for (const TensorId id : node_.inputs) {
      wanted = wanted || wanted_[static_cast<size_t>(id)];
    }
    if (influences && wanted) {
      HEDDLE_RETURN_IF_ERROR(node_.op->Gradient(*this));
    }
  }
  return NumberUses();
}

}  // namespace

Status Differentiate(Graph& graph) {
  return Differentiator(graph).Run();
}

}  // namespace heddle::graph
