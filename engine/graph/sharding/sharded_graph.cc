#include "engine/graph/sharding/sharded_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heddle::graph {
namespace {

std::string TextOf(const std::vector<Range>& ranges) {
  std::vector<std::string> texts;
  for (const Range& range : ranges) {
    texts.push_back(fmt::format("{}:{}", range.begin, range.end));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string TextOf(const Sharding& sharding) {
  switch (sharding.kind) {
    case Placement::Kind::kReplicate:
      return "whole";
    case Placement::Kind::kShard:
      return fmt::format("cut {} at {}", sharding.dim, TextOf(sharding.held));
    case Placement::Kind::kPartial:
      return fmt::format("partial {} at {}", sharding.op == ReduceOp::kSum ? "sum" : "max",
                         TextOf(sharding.held));
  }
  return "";
}

}  // namespace

std::string_view FormName(ExchangeForm form) {
  switch (form) {
    case ExchangeForm::kSum:
      return "sum";
    case ExchangeForm::kMax:
      return "max";
    case ExchangeForm::kScatter:
      return "scatter";
    case ExchangeForm::kGather:
      return "gather";
    case ExchangeForm::kSlice:
      return "slice";
    case ExchangeForm::kFill:
      return "fill";
  }
  return "";
}

std::string ToString(const ShardedGraph& sharded) {
  const Graph& graph = sharded.graph;
  std::string text;
  auto line = [&](TensorId id, std::string_view maker) {
    text += fmt::format("{} by {}: {}\n", graph.tensor(id).name, maker,
                        TextOf(sharded.shardings[static_cast<size_t>(id)]));
  };
  for (const Step& step : sharded.order) {
    if (step.node < 0) {
      const Exchange& exchange = sharded.exchanges[static_cast<size_t>(step.exchange)];
      line(exchange.to, FormName(exchange.form));
      continue;
    }
    const Node& node = graph.node(step.node);
    for (const TensorId output : node.outputs) {
      line(output, node.op->name());
    }
  }
  return text;
}

}  // namespace heddle::graph
