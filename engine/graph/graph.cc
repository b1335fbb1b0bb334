#include "engine/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/graph/operator.h"

namespace heddle::graph {
namespace {

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kWeight:
      return "weight";
  }
  return "";
}

std::string Named(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<std::string> parts;
  parts.reserve(ids.size());
  for (const TensorId id : ids) {
    parts.push_back(graph.tensor(id).name);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string ToString(const TensorType& type) {
  return fmt::format("{}{}", DTypeName(type.dtype), ToString(type.shape));
}

std::string NodeSignature(const Graph& graph, const Node& node) {
  std::vector<std::string> inputs;
  inputs.reserve(node.inputs.size());
  for (const TensorId id : node.inputs) {
    inputs.push_back(ToString(graph.tensor(id).type));
  }
  const Attributes deciding = node.attributes.Without({"epsilon", "features", "first_feature",
                                                       "first_head", "first_position", "first_row",
                                                       "inverse", "p", "scale", "site", "theta"});
  return fmt::format("{}({}){}", node.op->name(), fmt::join(inputs, ", "), deciding.ToString());
}

std::string ToString(const Graph& graph) {
  std::string text;
  for (const Parameter& parameter : graph.parameters) {
    text += fmt::format("parameter {} {}\n", parameter.name,
                        ToString(graph.tensor(parameter.compute).type));
  }
  for (const Node& node : graph.nodes) {
    std::vector<std::string> types;
    types.reserve(node.outputs.size());
    for (const TensorId id : node.outputs) {
      types.push_back(ToString(graph.tensor(id).type));
    }
    text += fmt::format(
        "{} {}: {} = {}({}){}: {}\n", graph.segments[static_cast<size_t>(node.segment)].name,
        PhaseName(node.phase), Named(graph, node.outputs), node.op->name(),
        Named(graph, node.inputs), node.attributes.ToString(), fmt::join(types, ", "));
  }
  return text;
}

}  // namespace heddle::graph
