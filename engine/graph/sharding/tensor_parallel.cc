#include "engine/graph/sharding/tensor_parallel.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "engine/graph/sharding/sharding.h"

namespace heddle::graph {
namespace {

class Builder {
 public:
  Builder(const Graph& graph, const std::vector<int>& units, bool divides_sequence)
      : graph_(graph),
        divides_sequence_(divides_sequence) {
    layout_.cuts = {{.units = units}};
    for (const Node& node : graph.nodes) {
      for (const TensorId input : node.inputs) {
        readers_.emplace_back(input, &node);
      }
    }
    std::ranges::stable_sort(readers_, {}, &Reader::first);
  }

  Result<Layout> Run() && {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) {
        continue;
      }
      const std::string_view op = node.op->name();
      if (op == "attention") {
        HEDDLE_RETURN_IF_ERROR(PlaceAttention(node));
      } else if (op == "swiglu" || op == "gelu") {
        PlaceActivation(node);
      } else if (op == "embedding") {
        Place(node.inputs[1], Placement::Shard(0));
      } else if (op == "cross_entropy") {
        PlaceRows(node.inputs[0], Placement::Shard(0), 0);
      }
      if (divides_sequence_ && (op == "add" || op == "embedding")) {
        Place(node.outputs[0], Placement::Shard(1));
      }
    }
    return std::move(layout_);
  }

 private:
  using Reader = std::pair<TensorId, const Node*>;

  int64_t Units() const {
    const std::vector<int>& units = layout_.cuts[0].units;
    return std::accumulate(units.begin(), units.end(), int64_t{0});
  }

  void Place(TensorId id, Placement placement, int64_t covered = 0) {
    layout_.tensors.try_emplace(graph_.tensor(id).name,
                                Placed{.placement = placement, .cut = 0, .covered = covered});
  }

  /// The linear layer whose output the tensor is, past rotary positions; null: there is none.
  const Node* LinearBefore(TensorId id) const {
    const NodeId producer = graph_.tensor(id).producer;
    if (producer < 0) {
      return nullptr;
    }
    const Node& node = graph_.node(producer);
    if (node.op->name() == "rope") {
      return LinearBefore(node.inputs[0]);
    }
    return node.op->name() == "linear" ? &node : nullptr;
  }

  /// Cuts the output features of the linear layer before a tensor.
  void PlaceRows(TensorId id, Placement placement, int64_t covered) {
    if (const Node* const linear = LinearBefore(id)) {
      for (size_t i = 1; i < linear->inputs.size(); ++i) {
        Place(linear->inputs[i], placement, covered);
      }
    }
  }

  /// Cuts the input features of the linear layers that read a tensor.
  void PlaceColumns(TensorId id, int64_t unit) {
    for (auto it = std::ranges::lower_bound(readers_, id, {}, &Reader::first);
         it != readers_.end() && it->first == id; ++it) {
      const Node* const reader = it->second;
      if (reader->phase == Phase::kForward && reader->op->name() == "linear") {
        Place(reader->inputs[1], Placement::Shard(1, unit));
        if (divides_sequence_) {
          Place(reader->outputs[0], Placement::Shard(1));
        }
      }
    }
  }

  void PlaceActivation(const Node& node) {
    for (const TensorId input : node.inputs) {
      PlaceRows(input, Placement::Shard(0), 0);
    }
    PlaceColumns(node.outputs[0], 1);
  }

  Status PlaceAttention(const Node& node) {
    const int64_t heads = node.attributes.Int("heads");
    const int64_t kv_heads = node.attributes.Int("kv_heads");
    const int64_t head = graph_.tensor(node.inputs[0]).type.shape.back() / heads;
    const bool whole_groups = std::ranges::all_of(
        layout_.cuts[0].units, [&](int units) { return units * kv_heads % Units() == 0; });
    const int64_t items = whole_groups ? kv_heads : heads;
    HEDDLE_RETURN_IF_ERROR(CheckShares(node, items));
    const int64_t query = whole_groups ? head * heads / kv_heads : head;
    PlaceRows(node.inputs[0], Placement::Shard(0, query), 0);
    for (const size_t i : {size_t{1}, size_t{2}}) {
      if (whole_groups || heads == kv_heads) {
        PlaceRows(node.inputs[i], Placement::Shard(0, head), 0);
      } else {
        PlaceRows(node.inputs[i], Placement::Cover(0, head), heads);
      }
    }
    PlaceColumns(node.outputs[0], query);
    return Status::Ok();
  }

  Status CheckShares(const Node& node, int64_t items) const {
    const std::vector<Range> shares = SharesOf(layout_.cuts[0], items);
    for (size_t position = 0; position < shares.size(); ++position) {
      if (shares[position].empty() && layout_.cuts[0].units[position] > 0) {
        return InvalidArgumentError(
            "tensor parallelism over {} workers: the share of the {}. is less than one of the {} "
            "heads of '{}'; use fewer workers for a stage",
            shares.size(), position + 1, items, graph_.tensor(node.outputs[0]).name);
      }
    }
    return Status::Ok();
  }

  const Graph& graph_;
  const bool divides_sequence_;
  std::vector<Reader> readers_;  ///< Ascending.
  Layout layout_;
};

}  // namespace

Result<Layout> TensorParallel(const Graph& graph,
                              const std::vector<int>& units,
                              bool divides_sequence) {
  int64_t sum = 0;
  for (const int share : units) {
    if (share < 0) {
      return InvalidArgumentError("tensor parallelism: a share has {} units", share);
    }
    sum += share;
  }
  if (sum == 0) {
    return InvalidArgumentError("tensor parallelism: no share has a unit");
  }
  return Builder(graph, units, divides_sequence).Run();
}

std::optional<Heads> FewestHeads(const Graph& graph) {
  std::optional<Heads> fewest;
  for (const Node& node : graph.nodes) {
    if (node.op->name() == "attention") {
      const Heads heads{.query = node.attributes.Int("heads"),
                        .key_value = node.attributes.Int("kv_heads")};
      fewest = fewest ? Heads{.query = std::min(fewest->query, heads.query),
                              .key_value = std::min(fewest->key_value, heads.key_value)}
                      : heads;
    }
  }
  return fewest;
}

}  // namespace heddle::graph
