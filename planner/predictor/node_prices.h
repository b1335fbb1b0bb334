/// \file
/// Prices the nodes of Programs on the workers that run them.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/program/profile.h"

namespace heddle::planner {

/// Seconds of nodes; each distinct signature is priced once for each worker.
class NodePrices {
 public:
  /// `graphs`: by rank, the graph whose nodes the worker runs.
  NodePrices(std::vector<const graph::Graph*> graphs,
             const std::vector<program::WorkerProfile>& workers)
      : graphs_(std::move(graphs)),
        workers_(workers),
        prices_(workers.size()) {
    std::unordered_map<std::string, size_t> kinds;
    for (const graph::Graph* const graph : graphs_) {
      std::vector<size_t>& kind = kinds_[graph];
      for (size_t node = kind.size(); node < graph->nodes.size(); ++node) {
        kind.push_back(kinds.emplace(graph::NodeSignature(*graph, graph->nodes[node]), kinds.size())
                           .first->second);
      }
    }
    for (auto& prices : prices_) {
      prices.assign(kinds.size(), -1);
    }
  }

  double Seconds(size_t rank, graph::NodeId node) {
    const graph::Graph& graph = *graphs_[rank];
    double& price = prices_[rank][kinds_.at(&graph)[static_cast<size_t>(node)]];
    if (price < 0) {
      price = workers_[rank].Seconds(graph, graph.node(node));
    }
    return price;
  }

 private:
  std::vector<const graph::Graph*> graphs_;
  const std::vector<program::WorkerProfile>& workers_;
  std::unordered_map<const graph::Graph*, std::vector<size_t>> kinds_;  ///< By graph, by node.
  std::vector<std::vector<double>> prices_;                             ///< By rank, by kind.
};

}  // namespace heddle::planner
