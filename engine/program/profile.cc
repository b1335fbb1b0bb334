#include "engine/program/profile.h"

#include <algorithm>

#include "engine/graph/operator.h"

namespace heddle::program {

namespace {

// Passes over memory for one byte of the gradient or value, when the rate was not measured: a fold
// reads two and writes one, a copy reads one and writes one, an update reads gradient, master and
// two moments and writes the latter three.
double Passes(std::string_view what) {
  if (what == "fold") {
    return 3;
  }
  return what == "update" ? 7 : 2;
}

std::vector<graph::TensorType> TypesOf(const graph::Graph& graph,
                                       const std::vector<graph::TensorId>& tensors) {
  std::vector<graph::TensorType> types;
  types.reserve(tensors.size());
  for (const graph::TensorId tensor : tensors) {
    types.push_back(graph.tensor(tensor).type);
  }
  return types;
}

}  // namespace

double WorkerProfile::Seconds(const graph::Graph& graph, const graph::Node& node) const {
  const auto measured = seconds.find(graph::NodeSignature(graph, node));
  if (measured != seconds.end()) {
    return measured->second;
  }
  const graph::Cost cost =
      node.op->CostOf(TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes);
  const double arithmetic = flops_per_second > 0 ? cost.flops / flops_per_second : 0;
  const double memory = bytes_per_second > 0 ? cost.bytes / bytes_per_second : 0;
  return std::max(arithmetic, memory);
}

double WorkerProfile::ByteSeconds(std::string_view what, int64_t bytes) const {
  const auto measured = seconds.find(std::string(what));
  if (measured != seconds.end()) {
    return measured->second * static_cast<double>(bytes);
  }
  return bytes_per_second > 0 ? Passes(what) * static_cast<double>(bytes) / bytes_per_second : 0;
}

}  // namespace heddle::program
