#include "tests/support/graph/layouts.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>

namespace heddle::testing {
namespace {

using graph::Cut;
using graph::Graph;
using graph::Layout;
using graph::Node;
using graph::Phase;
using graph::Placed;
using graph::Placement;
using graph::TensorId;
using graph::TensorKind;

void PlaceLayer(const std::string& layer,
                const graph::ModelConfig& config,
                const TensorParallel& parallel,
                Layout& layout) {
  const int64_t head = config.hidden_size / config.num_attention_heads;
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  const int64_t query = parallel.within_groups ? head : head * group;
  const Placed kv =
      parallel.within_groups && group > 1
          ? Placed{.placement = Placement::Cover(0, head), .covered = config.num_attention_heads}
          : Placed{.placement = Placement::Shard(0, head)};
  for (const std::string_view kind : {".weight", ".bias"}) {
    const std::string end(kind);
    layout.tensors[layer + ".attention.query" + end] = {.placement = Placement::Shard(0, query)};
    layout.tensors[layer + ".attention.key" + end] = kv;
    layout.tensors[layer + ".attention.value" + end] = kv;
    layout.tensors[layer + ".mlp.gate" + end] = {.placement = Placement::Shard(0)};
    layout.tensors[layer + ".mlp.up" + end] = {.placement = Placement::Shard(0)};
  }
  layout.tensors[layer + ".attention.output.weight"] = {.placement = Placement::Shard(1, query)};
  layout.tensors[layer + ".mlp.down.weight"] = {.placement = Placement::Shard(1)};
  if (parallel.sequence) {
    for (const std::string_view half : {".attention", ".mlp"}) {
      layout.tensors[layer + std::string(half) + ".residual"] = {.placement = Placement::Shard(1)};
    }
  }
}

/// Shares at random points of the units, so that some are empty.
Cut RandomCut(int members, int units, Random& random) {
  std::vector<int> edges = {0, units};
  for (int i = 1; i < members; ++i) {
    edges.push_back(static_cast<int>(random.Between(0, units)));
  }
  std::ranges::sort(edges);
  Cut cut;
  for (int i = 0; i < members; ++i) {
    cut.units.push_back(edges[static_cast<size_t>(i) + 1] - edges[static_cast<size_t>(i)]);
  }
  return cut;
}

class LayoutGenerator {
 public:
  LayoutGenerator(const Graph& graph, Random& random) : graph_(graph), random_(random) {}

  Layout Run();

 private:
  bool Chance(uint64_t percent) { return random_.Below(100) < percent; }
  int AnyCut() { return static_cast<int>(random_.Below(layout_.cuts.size())); }
  void Place(TensorId id, Placement placement, int cut, int64_t covered = 0) {
    layout_.tensors.try_emplace(graph_.tensor(id).name,
                                Placed{.placement = placement, .cut = cut, .covered = covered});
  }
  void PlaceAny(TensorId id, int first_dim);
  const Node* LinearBefore(TensorId id) const;
  void PlaceRows(TensorId id, Placement placement, int cut, int64_t covered);
  void PlaceHeads(const Node& attention);
  void PlaceLinear(const Node& linear);

  const Graph& graph_;
  Random& random_;
  Layout layout_;
};

/// A cut of any dimension from `first_dim` on, in any units that fit.
void LayoutGenerator::PlaceAny(TensorId id, int first_dim) {
  const Shape& shape = graph_.tensor(id).type.shape;
  const int dim =
      static_cast<int>(random_.Between(first_dim, static_cast<int64_t>(shape.size()) - 1));
  int64_t unit = random_.Between(1, 4);
  while (shape[static_cast<size_t>(dim)] % unit != 0) {
    --unit;
  }
  Place(id, Placement::Shard(dim, unit), AnyCut());
}

/// The linear layer that computes the tensor, past rotary positions.
const Node* LayoutGenerator::LinearBefore(TensorId id) const {
  const graph::NodeId producer = graph_.tensor(id).producer;
  if (producer < 0) {
    return nullptr;
  }
  const Node& node = graph_.node(producer);
  if (node.op->name() == "rope") {
    return LinearBefore(node.inputs[0]);
  }
  return node.op->name() == "linear" ? &node : nullptr;
}

/// The weight's rows, and mostly the bias.
void LayoutGenerator::PlaceRows(TensorId id, Placement placement, int cut, int64_t covered) {
  if (const Node* const linear = LinearBefore(id)) {
    Place(linear->inputs[1], placement, cut, covered);
    if (linear->inputs.size() == 3 && Chance(90)) {
      Place(linear->inputs[2], placement, cut, covered);
    }
  }
}

void LayoutGenerator::PlaceHeads(const Node& attention) {
  const int64_t heads = attention.attributes.Int("heads");
  const int64_t kv_heads = attention.attributes.Int("kv_heads");
  const int64_t head = graph_.tensor(attention.inputs[0]).type.shape[2] / heads;
  const int cut = AnyCut();
  const bool covers = kv_heads < heads && Chance(60);
  const int64_t query = covers ? head : head * heads / kv_heads;
  PlaceRows(attention.inputs[0], Placement::Shard(0, query), cut, 0);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (covers) {
      PlaceRows(attention.inputs[i], Placement::Cover(0, head), cut, heads);
    } else {
      PlaceRows(attention.inputs[i], Placement::Shard(0, head), cut, 0);
    }
  }
  for (const Node& node : graph_.nodes) {
    if (node.op->name() == "linear" && node.inputs[0] == attention.outputs[0]) {
      Place(node.inputs[1], Placement::Shard(1, query), cut);
    }
  }
}

void LayoutGenerator::PlaceLinear(const Node& linear) {
  if (Chance(30)) {
    return;
  }
  const TensorId weight = linear.inputs[1];
  if (Chance(20)) {
    PlaceAny(weight, 0);
  } else if (Chance(50)) {
    PlaceRows(linear.outputs[0], Placement::Shard(0), 0, 0);
  } else {
    Place(weight, Placement::Shard(1), 0);
  }
}

Layout LayoutGenerator::Run() {
  const int members = static_cast<int>(random_.Between(1, 8));
  const int units = static_cast<int>(random_.Between(0, 3) > 0 ? 8 : random_.Between(1, 12));
  for (int64_t cuts = random_.Between(1, 2); cuts > 0; --cuts) {
    layout_.cuts.push_back(RandomCut(members, units, random_));
  }
  const bool sequence = Chance(25);
  for (const Node& node : graph_.nodes) {
    if (node.phase != Phase::kForward) {
      break;
    }
    if (node.op->name() == "attention" && Chance(80)) {
      PlaceHeads(node);
    }
  }
  for (const Node& node : graph_.nodes) {
    if (node.op->name() == "linear") {
      PlaceLinear(node);
    }
  }
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const graph::Tensor& tensor = graph_.tensors[i];
    const auto id = static_cast<TensorId>(i);
    const bool vector = tensor.type.shape.size() == 1;
    if (tensor.kind == TensorKind::kParameter && Chance(vector ? 10 : 40)) {
      PlaceAny(id, 0);
    }
    const bool computed =
        tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kGradient;
    if (computed && tensor.type.shape.size() == 3 && Chance(3)) {
      PlaceAny(id, 1);
    }
    if (computed && sequence && tensor.name.starts_with("add")) {
      Place(id, Placement::Shard(1), 0);
    }
  }
  return layout_;
}

}  // namespace

Layout LayoutOf(const Graph& graph,
                const graph::ModelConfig& config,
                const TensorParallel& parallel) {
  Layout wanted{.cuts = {{.units = parallel.units}}, .tensors = {}};
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    PlaceLayer("layers." + std::to_string(layer), config, parallel, wanted);
  }
  if (parallel.vocabulary) {
    for (const std::string_view table : {"embedding.weight", "head.weight"}) {
      wanted.tensors[std::string(table)] = {.placement = Placement::Shard(0)};
    }
  }
  if (parallel.sequence) {
    for (const std::string_view name : {"embedding", "embedding.position", "embedding.dropout"}) {
      wanted.tensors[std::string(name)] = {.placement = Placement::Shard(1)};
    }
  }
  // Of what a model may have, this graph has some.
  Layout layout{.cuts = wanted.cuts, .tensors = {}};
  for (const graph::Tensor& tensor : graph.tensors) {
    if (const auto it = wanted.tensors.find(tensor.name); it != wanted.tensors.end()) {
      layout.tensors.insert(*it);
    }
  }
  return layout;
}

Layout RandomLayout(const Graph& graph, Random& random) {
  return LayoutGenerator(graph, random).Run();
}

}  // namespace heddle::testing
