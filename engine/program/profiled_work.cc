#include "engine/program/profiled_work.h"

#include <set>
#include <utility>

#include "engine/graph/operator.h"
#include "engine/graph/sharding/complete.h"
#include "engine/graph/sharding/localise.h"

namespace heddle::program {
namespace {

class Collector {
 public:
  void Add(graph::Graph graph, const std::vector<graph::NodeId>& nodes) {
    const size_t before = work_.parts.size();
    for (const graph::NodeId node : nodes) {
      std::string signature = graph::NodeSignature(graph, graph.node(node));
      if (known_.insert(signature).second) {
        work_.parts.push_back(
            {.signature = std::move(signature), .graph = work_.graphs.size(), .node = node});
      }
    }
    if (work_.parts.size() > before) {
      work_.graphs.push_back(std::move(graph));
    }
  }

  ProfiledWork Take() { return std::move(work_); }

 private:
  ProfiledWork work_;
  std::set<std::string> known_;
};

}  // namespace

Result<ProfiledWork> WorkOf(const graph::Graph& graph, const std::vector<graph::Layout>& layouts) {
  Collector collector;
  std::vector<graph::NodeId> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    nodes.push_back(static_cast<graph::NodeId>(n));
  }
  collector.Add(graph, nodes);
  for (const graph::Layout& layout : layouts) {
    HEDDLE_ASSIGN_OR_RETURN(const graph::ShardedGraph sharded, graph::Complete(graph, layout));
    for (int position = 0; position < sharded.members; ++position) {
      graph::LocalGraph local = graph::Localise(sharded, position);
      nodes.clear();
      for (const graph::Step& step : local.order) {
        if (step.node >= 0) {
          nodes.push_back(step.node);
        }
      }
      collector.Add(std::move(local.graph), nodes);
    }
  }
  return collector.Take();
}

}  // namespace heddle::program
