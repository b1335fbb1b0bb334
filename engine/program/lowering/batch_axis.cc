#include "engine/program/lowering/batch_axis.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/program/stages.h"

namespace heddle::program {

using graph::Graph;
using graph::Node;
using graph::Placement;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

namespace {

std::string ToString(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kReplicate:
      return "replicate";
    case Placement::Kind::kShard:
      return fmt::format("shard({})", placement.dim);
    case Placement::Kind::kPartial:
      return "partial";
  }
  return "unknown";
}

std::vector<graph::TensorType> TypesOf(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<graph::TensorType> types;
  types.reserve(tensors.size());
  for (const TensorId tensor : tensors) {
    types.push_back(graph.tensor(tensor).type);
  }
  return types;
}

std::string NodeName(const Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  return fmt::format("node {} ({} -> {})", index, node.op->name(),
                     node.outputs.empty() ? "nothing" : graph.tensor(node.outputs.front()).name);
}

Status CheckNode(const Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  const auto id = static_cast<graph::NodeId>(index);
  if (node.op == nullptr) {
    return InvalidArgumentError("graph: node {} has no operator", index);
  }
  if (node.segment < 0 || static_cast<size_t>(node.segment) >= graph.segments.size()) {
    return InvalidArgumentError("graph: {}: segment {} does not exist", NodeName(graph, index),
                                node.segment);
  }
  for (const TensorId input : node.inputs) {
    const Tensor& tensor = graph.tensor(input);
    if (tensor.producer >= id) {
      return InvalidArgumentError("graph: {} reads {} before it exists", NodeName(graph, index),
                                  tensor.name);
    }
    if (tensor.kind == TensorKind::kWeightGradient) {
      return InvalidArgumentError(
          "graph: {} reads the weight gradient {}, which is summed in place",
          NodeName(graph, index), tensor.name);
    }
  }
  for (const TensorId output : node.outputs) {
    if (graph.tensor(output).producer != id) {
      return InvalidArgumentError("graph: {}: {} names another producer", NodeName(graph, index),
                                  graph.tensor(output).name);
    }
  }
  return Status::Ok();
}

// The uses of one parameter, checked: each is a sum over microbatches of the parameter's own shape.
Status CollectUses(const Graph& graph,
                   size_t index,
                   const std::vector<Placement>& placements,
                   std::vector<GradientUse>& out) {
  const graph::Parameter& parameter = graph.parameters[index];
  for (size_t use = 0; use < parameter.gradients.size(); ++use) {
    const TensorId id = parameter.gradients[use];
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer < 0 || tensor.kind != TensorKind::kWeightGradient ||
        tensor.parameter != static_cast<graph::ParameterId>(index) ||
        tensor.use != static_cast<int>(use)) {
      return InvalidArgumentError("graph: {} is not use {} of parameter {}", tensor.name, use,
                                  parameter.name);
    }
    if (tensor.type.dtype != graph.master_dtype() || tensor.type.shape != parameter.shape) {
      return InvalidArgumentError(
          "graph: the weight gradient {} is {} {}, expected {} {}", tensor.name,
          DTypeName(tensor.type.dtype), heddle::ToString(tensor.type.shape),
          DTypeName(graph.master_dtype()), heddle::ToString(parameter.shape));
    }
    const Placement& placement = placements[static_cast<size_t>(id)];
    if (placement != Placement::Partial()) {
      return InvalidArgumentError(
          "graph: the weight gradient {} lies {} over microbatches, expected partial", tensor.name,
          ToString(placement));
    }
    out.push_back({.use = static_cast<int>(use),
                   .tensor = id,
                   .segment = graph.node(tensor.producer).segment});
  }
  return Status::Ok();
}

Status CheckLoss(const Graph& graph, const std::vector<Placement>& placements) {
  if (graph.loss < 0 || graph.tensor(graph.loss).producer < 0) {
    return InvalidArgumentError("graph: no node computes a loss");
  }
  const Placement& placement = placements[static_cast<size_t>(graph.loss)];
  if (placement != Placement::Partial()) {
    return InvalidArgumentError("graph: the loss lies {} over microbatches, expected partial",
                                ToString(placement));
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<Placement>> PropagateBatchAxis(const Graph& graph) {
  std::vector<Placement> placements(graph.tensors.size(), Placement::Replicate());
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorKind kind = graph.tensors[t].kind;
    if (kind == TensorKind::kTokens || kind == TensorKind::kTargets) {
      placements[t] = Placement::Shard(0);
    }
  }
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[index];
    std::vector<Placement> inputs;
    inputs.reserve(node.inputs.size());
    for (const TensorId input : node.inputs) {
      inputs.push_back(placements[static_cast<size_t>(input)]);
    }
    const std::vector<graph::ShardingRule> rules = node.op->ShardingRules(
        TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes);
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const auto& candidate) {
      return candidate.inputs == inputs;
    });
    if (rule == rules.end()) {
      std::string text;
      for (const Placement& input : inputs) {
        text += (text.empty() ? "" : ", ") + ToString(input);
      }
      return InvalidArgumentError("graph: {} has no sharding rule for inputs ({})",
                                  NodeName(graph, index), text);
    }
    if (rule->outputs.size() != node.outputs.size()) {
      return InvalidArgumentError("graph: {}: a sharding rule places {} outputs of {}",
                                  NodeName(graph, index), rule->outputs.size(),
                                  node.outputs.size());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      placements[static_cast<size_t>(node.outputs[i])] = rule->outputs[i];
    }
  }
  return placements;
}

Result<GraphAnalysis> Analyze(const Graph& graph) {
  GraphAnalysis analysis;
  analysis.readers.resize(graph.tensors.size());
  analysis.segment_nodes.resize(graph.segments.size());
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    HEDDLE_RETURN_IF_ERROR(CheckNode(graph, index));
    const Node& node = graph.nodes[index];
    const auto id = static_cast<graph::NodeId>(index);
    analysis.segment_nodes[static_cast<size_t>(node.segment)].push_back(id);
    for (const TensorId input : node.inputs) {
      std::vector<graph::NodeId>& readers = analysis.readers[static_cast<size_t>(input)];
      if (readers.empty() || readers.back() != id) {
        readers.push_back(id);
      }
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Placement> placements, PropagateBatchAxis(graph));
  HEDDLE_RETURN_IF_ERROR(CheckLoss(graph, placements));
  analysis.parameter_segments = ParameterSegments(graph);
  analysis.segment_parameters.resize(graph.segments.size());
  analysis.uses.resize(graph.parameters.size());
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    for (const int segment : analysis.parameter_segments[p]) {
      analysis.segment_parameters[static_cast<size_t>(segment)].push_back(
          static_cast<graph::ParameterId>(p));
    }
    HEDDLE_RETURN_IF_ERROR(CollectUses(graph, p, placements, analysis.uses[p]));
    analysis.differentiated = analysis.differentiated || !analysis.uses[p].empty();
  }
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    if (analysis.differentiated && analysis.uses[p].empty()) {
      return InvalidArgumentError("graph: parameter {} has no gradient", graph.parameters[p].name);
    }
  }
  return analysis;
}

}  // namespace heddle::program
