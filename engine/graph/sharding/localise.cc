#include "engine/graph/sharding/localise.h"

namespace heddle::graph {
namespace {

Attributes LocalAttributes(const Attributes& attributes,
                           const ShardingRule& rule,
                           const Division& division,
                           int position) {
  Attributes local = attributes;
  if (division.shares.empty()) {
    return local;
  }
  const Range share = division.shares[static_cast<size_t>(position)];
  for (const std::string& name : rule.scaled) {
    const Range items = Outwards(share, division.units, attributes.Int(name));
    local.Set(name, items.end - items.begin);
  }
  for (const std::string& name : rule.first) {
    local.Set(name, attributes.FindInt(name).value_or(0) + share.begin);
  }
  for (const auto& [name, value] : rule.given) {
    local.Set(name, value);
  }
  return local;
}

void LocaliseTensor(const Sharding& sharding, int position, LocalGraph& local) {
  Shape& shape = local.graph.tensors[local.boxes.size()].type.shape;
  const std::optional<Box> box = BoxOf(sharding, shape, position);
  if (box) {
    shape = box->extent;
  } else if (!shape.empty()) {
    shape[static_cast<size_t>(sharding.dim < 0 ? 0 : sharding.dim)] = 0;
  }
  local.boxes.push_back(box);
}

}  // namespace

LocalGraph Localise(const ShardedGraph& sharded, int position) {
  LocalGraph local{
      .graph = sharded.graph, .boxes = {}, .exchanges = sharded.exchanges, .order = {}};
  for (const Sharding& sharding : sharded.shardings) {
    LocaliseTensor(sharding, position, local);
  }
  for (size_t i = 0; i < local.graph.nodes.size(); ++i) {
    Node& node = local.graph.nodes[i];
    node.attributes =
        LocalAttributes(node.attributes, sharded.rules[i], sharded.divisions[i], position);
  }
  for (const Step& step : sharded.order) {
    if (step.node < 0 || sharded.divisions[static_cast<size_t>(step.node)].Runs(position)) {
      local.order.push_back(step);
    }
  }
  return local;
}

}  // namespace heddle::graph
