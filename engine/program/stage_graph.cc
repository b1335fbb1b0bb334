#include "engine/program/stage_graph.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/sharding/choose.h"
#include "engine/graph/sharding/complete.h"
#include "engine/program/pieces.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::Exchange;
using graph::ExchangeForm;
using graph::ParameterId;
using graph::Placement;
using graph::Range;
using graph::ShardedGraph;
using graph::Sharding;
using graph::TensorId;

namespace {

bool Holds(const Stage& stage, int segment) {
  return segment >= stage.first_segment && segment < stage.last_segment;
}

const Pipeline& PipelineOf(const Plan& plan, const Stage& stage) {
  return plan.pipelines[static_cast<size_t>(PositionOf(plan, stage.group.front()).pipeline)];
}

// What the members of a group of `members` have of a tensor that travels in `parts` parts.
Sharding PartsOf(const Shape& shape, int parts, int members) {
  Sharding sharding{.kind = Placement::Kind::kShard, .dim = parts > 1 ? 1 : 0, .held = {}};
  std::vector<int> units(static_cast<size_t>(members), 0);
  std::fill_n(units.begin(), parts, 1);
  sharding.held =
      graph::SharesOf({.units = std::move(units)}, graph::ExtentOf(shape, sharding.dim));
  return sharding;
}

// Adds to a sharded graph what its own tensors do not say.
class StageGraphBuilder {
 public:
  StageGraphBuilder(const graph::Graph& graph, const Stage& stage, ShardedGraph sharded)
      : graph_(graph),
        stage_(stage) {
    result_.sharded = std::move(sharded);
  }

  StageGraph Build() && {
    result_.loss = WholeOf(graph_.loss);
    for (size_t p = 0; p < graph_.parameters.size(); ++p) {
      for (const TensorId gradient : graph_.parameters[p].gradients) {
        if (Holds(stage_, graph_.node(graph_.tensor(gradient).producer).segment)) {
          AddUse(static_cast<ParameterId>(p), gradient);
        }
      }
    }
    return std::move(result_);
  }

 private:
  ShardedGraph& sharded() { return result_.sharded; }
  const Sharding& ShardingOf(TensorId id) const {
    return result_.sharded.shardings[static_cast<size_t>(id)];
  }

  // The version of a tensor that is placed whole: itself, or what the exchange behind it makes.
  TensorId WholeOf(TensorId id) const {
    if (ShardingOf(id).kind == Placement::Kind::kReplicate) {
      return id;
    }
    for (const Exchange& exchange : result_.sharded.exchanges) {
      if (exchange.from == id && ShardingOf(exchange.to).kind == Placement::Kind::kReplicate) {
        return exchange.to;
      }
    }
    HEDDLE_CHECK(false, "{} is nowhere whole", graph_.tensor(id).name);
    return -1;
  }

  std::vector<std::optional<Box>> BoxesOf(const Sharding& sharding, const Shape& shape) const {
    std::vector<std::optional<Box>> boxes;
    for (int q = 0; q < result_.sharded.members; ++q) {
      boxes.push_back(graph::BoxOf(sharding, shape, q));
    }
    return boxes;
  }

  void AddUse(ParameterId id, TensorId gradient) {
    const graph::Parameter& parameter = graph_.parameter(id);
    const Sharding placed = ShardingOf(parameter.compute);
    const std::vector<HeldPiece> pieces = PiecesOf(BoxesOf(placed, parameter.shape));
    const int use = graph_.tensor(gradient).use;
    if (Contribute(id, use, gradient, pieces)) {
      return;
    }
    // Each element to its first holder, and copies of the whole to all.
    Sharding wanted = placed;
    wanted.held = graph::OwnersOf(placed.held);
    const TensorId moved = Obtain(gradient, wanted);
    if (Contribute(id, use, moved, pieces)) {
      return;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      TakePiece(id, use, moved, static_cast<int>(i), pieces[i].box);
    }
  }

  // Whether the parts of a gradient that members have are pieces of the parameter that they hold;
  // then they contribute them.
  bool Contribute(ParameterId id, int use, TensorId tensor, const std::vector<HeldPiece>& pieces) {
    const Sharding& sharding = ShardingOf(tensor);
    if (sharding.partial() && sharding.op != graph::ReduceOp::kSum) {
      return false;
    }
    std::vector<std::vector<int>> members(pieces.size());
    const auto boxes = BoxesOf(sharding, graph_.parameter(id).shape);
    for (size_t q = 0; q < boxes.size(); ++q) {
      if (!boxes[q]) {
        continue;
      }
      const auto piece = std::ranges::find(pieces, *boxes[q], &HeldPiece::box);
      if (piece == pieces.end() ||
          !std::ranges::binary_search(piece->holders, static_cast<int>(q))) {
        return false;
      }
      std::vector<int>& list = members[static_cast<size_t>(piece - pieces.begin())];
      if (list.empty() || sharding.partial()) {
        list.push_back(static_cast<int>(q));
      }
    }
    if (std::ranges::any_of(members, &std::vector<int>::empty)) {
      return false;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      result_.contributions[tensor].push_back({.parameter = id,
                                               .piece = static_cast<int>(i),
                                               .use = use,
                                               .members = std::move(members[i])});
    }
    return true;
  }

  // One piece of what its owner has of a gradient.
  void TakePiece(ParameterId id, int use, TensorId tensor, int piece, const Box& box) {
    Sharding sharding = ShardingOf(tensor);
    const auto dim = static_cast<size_t>(sharding.dim);
    const Range range{box.offset[dim], box.offset[dim] + box.extent[dim]};
    const auto owner = std::ranges::find_if(
        sharding.held, [&](const Range& held) { return held.contains(range); });
    HEDDLE_CHECK(owner != sharding.held.end(), "nobody has piece {} of the gradient of {}", piece,
                 graph_.parameter(id).name);
    const auto position = static_cast<int>(owner - sharding.held.begin());
    std::vector<Range> held(sharding.held.size());
    held[static_cast<size_t>(position)] = range;
    sharding.held = std::move(held);
    const TensorId part = AddExchange(ExchangeForm::kSlice, tensor, sharding);
    result_.contributions[part].push_back(
        {.parameter = id, .piece = piece, .use = use, .members = {position}});
  }

  TensorId Obtain(TensorId gradient, const Sharding& wanted) {
    const graph::Operand operand{.type = graph_.tensor(gradient).type,
                                 .parameter = false,
                                 .versions = {ShardingOf(gradient)}};
    const std::optional<graph::Way> way = graph::WayTo(operand, wanted);
    HEDDLE_CHECK(way, "{} is not to be had as its parameter is", graph_.tensor(gradient).name);
    if (!way->form) {
      return gradient;
    }
    const TensorId from = way->through_whole ? Obtain(gradient, {}) : gradient;
    return AddExchange(*way->form, from, wanted);
  }

  TensorId AddExchange(ExchangeForm form, TensorId from, const Sharding& wanted) {
    const auto to = static_cast<TensorId>(sharded().graph.tensors.size());
    graph::Tensor tensor = sharded().graph.tensor(from);
    tensor.name = fmt::format("{}.{}.{}", tensor.name, FormName(form), to);
    tensor.kind = graph::TensorKind::kGradient;
    tensor.producer = -1;
    const Shape& shape = tensor.type.shape;
    const int dim =
        std::max(wanted.kind == Placement::Kind::kShard ? wanted.dim : ShardingOf(from).dim, 0);
    Exchange exchange{.form = form,
                      .from = from,
                      .to = to,
                      .dim = dim,
                      .sent = graph::RangesAlong(ShardingOf(from), dim, shape, sharded().members),
                      .received = graph::RangesAlong(wanted, dim, shape, sharded().members)};
    sharded().graph.tensors.push_back(std::move(tensor));
    sharded().shardings.push_back(wanted);
    sharded().order.push_back({.exchange = static_cast<int>(sharded().exchanges.size())});
    sharded().exchanges.push_back(std::move(exchange));
    return to;
  }

  const graph::Graph& graph_;
  const Stage& stage_;
  StageGraph result_;
};

// By tensor that crosses an edge of a stage: in how many parts it travels.
std::map<TensorId, int> EdgePartsOf(const graph::Graph& graph,
                                    const Plan& plan,
                                    const Stage& stage) {
  const Pipeline& pipeline = PipelineOf(plan, stage);
  std::map<TensorId, std::set<int>> stages;  // Those that compute and read a tensor.
  std::set<TensorId> crossing;
  for (const graph::Node& node : graph.nodes) {
    for (const TensorId input : node.inputs) {
      const graph::NodeId producer = graph.tensor(input).producer;
      if (producer < 0) {
        continue;
      }
      const int segment = graph.node(producer).segment;
      if (Holds(stage, segment) != Holds(stage, node.segment)) {
        crossing.insert(input);
      }
      stages[input].insert(StageOf(pipeline, segment));
      stages[input].insert(StageOf(pipeline, node.segment));
    }
  }
  std::map<TensorId, int> parts;
  for (const TensorId id : crossing) {
    size_t fewest = stage.group.size();
    for (const int each : stages.at(id)) {
      fewest = std::min(fewest, pipeline.stages[static_cast<size_t>(each)].group.size());
    }
    const Shape& shape = graph.tensor(id).type.shape;
    const bool fits = shape.size() > 1 && shape[1] >= static_cast<int64_t>(fewest);
    parts.emplace(id, fits ? static_cast<int>(fewest) : 1);
  }
  return parts;
}

}  // namespace

std::vector<int> StageGraphKey(const Plan& plan, const Stage& stage) {
  std::vector<int> key = {stage.layout, stage.first_segment, stage.last_segment};
  for (const Stage& each : PipelineOf(plan, stage).stages) {
    key.push_back(each.last_segment);
    key.push_back(static_cast<int>(each.group.size()));
  }
  return key;
}

Result<StageGraph> BuildStageGraph(const graph::Graph& graph,
                                   const Plan& plan,
                                   const Stage& stage) {
  graph::Layout layout = LayoutFor(graph, plan.layouts[static_cast<size_t>(stage.layout)]);
  layout.tensors[graph.tensor(graph.loss).name] = {};
  std::map<TensorId, Sharding> edges;
  for (const auto& [id, parts] : EdgePartsOf(graph, plan, stage)) {
    edges.emplace(
        id, PartsOf(graph.tensor(id).type.shape, parts, static_cast<int>(stage.group.size())));
  }
  HEDDLE_ASSIGN_OR_RETURN(ShardedGraph sharded, graph::Complete(graph, layout, edges));
  return StageGraphBuilder(graph, stage, std::move(sharded)).Build();
}

Result<graph::Graph> MemberGraph(const graph::Graph& graph, const Plan& plan, int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= plan.workers.size()) {
    return InvalidArgumentError("rank {} is not in 0..{}", rank, plan.workers.size() - 1);
  }
  const Position position = PositionOf(plan, rank);
  if (position.pipeline < 0) {
    return graph;
  }
  const Stage& stage = plan.pipelines[static_cast<size_t>(position.pipeline)]
                           .stages[static_cast<size_t>(position.stage)];
  if (stage.layout < 0) {
    return graph;
  }
  HEDDLE_ASSIGN_OR_RETURN(const StageGraph group, BuildStageGraph(graph, plan, stage));
  return graph::Localise(group.sharded, position.member).graph;
}

}  // namespace heddle::program
