#include "engine/program/lowering/stage_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace heddle::program {

using graph::Exchange;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::TensorId;

namespace {

bool Holds(const Stage& stage, int segment) {
  return segment >= stage.first_segment && segment < stage.last_segment;
}

// Puts the exchanges that a stage needs among its nodes.
class Orderer {
 public:
  Orderer(const StageGraph& group, const Stage& stage)
      : group_(group),
        graph_(group.sharded.graph),
        exchanges_(group.sharded.exchanges),
        stage_(stage),
        states_(exchanges_.size()) {}

  StageOrder Order() && {
    FindNodes();
    FindNeeded();
    forward_ = true;
    for (const NodeId node : forward_nodes_) {
      AddNode(node);
    }
    AddRest();
    forward_ = false;
    for (const NodeId node : backward_nodes_) {
      AddNode(node);
    }
    AddRest();
    return std::move(result_);
  }

 private:
  struct State {
    bool needed = false;
    bool forward = false;  ///< Something of the forward needs it.
    bool added = false;
  };
  State& state(size_t exchange) { return states_[exchange]; }

  std::vector<StageAction>& list() { return forward_ ? result_.forward : result_.backward; }

  void FindNodes() {
    for (const graph::Step& step : group_.sharded.order) {
      if (step.node < 0 || !Holds(stage_, graph_.node(step.node).segment)) {
        continue;
      }
      const Node& node = graph_.node(step.node);
      (node.phase == Phase::kForward ? forward_nodes_ : backward_nodes_).push_back(step.node);
      for (const TensorId output : node.outputs) {
        segments_.emplace(output, node.segment);
      }
    }
    for (size_t e = 0; e < exchanges_.size(); ++e) {
      makers_.emplace(exchanges_[e].to, e);
      readers_[exchanges_[e].from].push_back(e);
    }
  }

  // Exchanges read only what was there before them, so that readers come last.
  void FindNeeded() {
    std::set<TensorId> wanted;
    std::set<TensorId> in_forward;
    for (const std::vector<NodeId>* nodes : {&forward_nodes_, &backward_nodes_}) {
      for (const NodeId node : *nodes) {
        const std::vector<TensorId>& inputs = graph_.node(node).inputs;
        wanted.insert(inputs.begin(), inputs.end());
        if (nodes == &forward_nodes_) {
          in_forward.insert(inputs.begin(), inputs.end());
        }
      }
    }
    std::set<TensorId> received;
    std::map<TensorId, TensorId> leaving = group_.sharded.edges;
    leaving.emplace(graph_.loss, group_.loss);
    for (const auto& [id, made] : leaving) {
      const Node& producer = graph_.node(graph_.tensor(id).producer);
      if (!Holds(stage_, producer.segment)) {
        received.insert(made);
        continue;
      }
      wanted.insert(made);
      if (producer.phase == Phase::kForward) {
        in_forward.insert(made);
      }
    }
    for (const auto& [id, contributions] : group_.contributions) {
      wanted.insert(id);
    }
    for (size_t e = exchanges_.size(); e > 0; --e) {
      const Exchange& exchange = exchanges_[e - 1];
      if (wanted.count(exchange.to) == 0 || received.count(exchange.to) > 0) {
        continue;
      }
      states_[e - 1].needed = true;
      wanted.insert(exchange.from);
      if (in_forward.count(exchange.to) > 0) {
        states_[e - 1].forward = true;
        in_forward.insert(exchange.from);
      }
    }
  }

  bool Missing(size_t exchange) const {
    const State& it = states_[exchange];
    return it.needed && !it.added && it.forward == forward_;
  }

  void AddNode(NodeId id) {
    const Node& node = graph_.node(id);
    for (const TensorId input : node.inputs) {
      Ensure(input, node.segment);
    }
    list().push_back({.node = id, .segment = node.segment});
    for (const TensorId output : node.outputs) {
      const auto readers = readers_.find(output);
      if (readers == readers_.end()) {
        continue;
      }
      for (const size_t exchange : readers->second) {
        if (Missing(exchange)) {
          Add(exchange, node.segment);
        }
      }
    }
  }

  // Makes the exchange that a tensor comes from, unless that was made or is another stage's.
  void Ensure(TensorId id, int segment) {
    const auto maker = makers_.find(id);
    if (maker == makers_.end() || !Missing(maker->second)) {
      return;
    }
    const TensorId from = exchanges_[maker->second].from;
    Ensure(from, segment);
    const auto source = segments_.find(from);
    Add(maker->second, source == segments_.end() ? segment : source->second);
  }

  void Add(size_t exchange, int segment) {
    state(exchange).added = true;
    segments_.emplace(exchanges_[exchange].to, segment);
    list().push_back({.exchange = static_cast<int>(result_.exchanges.size()), .segment = segment});
    result_.exchanges.push_back(exchanges_[exchange]);
  }

  // What no node reads.
  void AddRest() {
    for (size_t exchange = 0; exchange < exchanges_.size(); ++exchange) {
      if (Missing(exchange)) {
        Ensure(exchanges_[exchange].to, stage_.last_segment - 1);
      }
    }
  }

  const StageGraph& group_;
  const graph::Graph& graph_;
  const std::vector<Exchange>& exchanges_;
  const Stage& stage_;
  std::vector<State> states_;
  std::vector<NodeId> forward_nodes_;
  std::vector<NodeId> backward_nodes_;
  std::map<TensorId, int> segments_;  ///< Of what the stage has made.
  std::map<TensorId, size_t> makers_;
  std::map<TensorId, std::vector<size_t>> readers_;
  bool forward_ = true;
  StageOrder result_;
};

}  // namespace

StageOrder OrderOf(const graph::Graph& graph, const GraphAnalysis& analysis, const Stage& stage) {
  std::vector<NodeId> nodes;
  for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
    const std::vector<NodeId>& list = analysis.segment_nodes[static_cast<size_t>(segment)];
    nodes.insert(nodes.end(), list.begin(), list.end());
  }
  std::sort(nodes.begin(), nodes.end());
  StageOrder order;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    (node.phase == Phase::kForward ? order.forward : order.backward)
        .push_back({.node = id, .segment = node.segment});
  }
  return order;
}

StageOrder OrderOf(const StageGraph& group, const Stage& stage) {
  return Orderer(group, stage).Order();
}

}  // namespace heddle::program
