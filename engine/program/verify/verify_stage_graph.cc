#include "engine/program/verify/verify_stage_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/graph/operator.h"
#include "engine/program/pieces.h"

namespace heddle::program {

using graph::Division;
using graph::Exchange;
using graph::ExchangeForm;
using graph::Node;
using graph::NodeId;
using graph::Placement;
using graph::Range;
using graph::ShardedGraph;
using graph::Sharding;
using graph::ShardingRule;
using graph::TensorId;

namespace {

using Kind = Placement::Kind;

std::string_view KindName(const Sharding& sharding) {
  switch (sharding.kind) {
    case Kind::kReplicate:
      return "whole";
    case Kind::kShard:
      return "cut";
    case Kind::kPartial:
      return "partial";
  }
  return "";
}

// Whether members that have addends have them of all elements.
bool HasAllRows(const Sharding& partial, const Shape& shape) {
  const Range whole{0, partial.dim < 0 ? 1 : graph::ExtentOf(shape, partial.dim)};
  return std::ranges::all_of(partial.held,
                             [&](const Range& range) { return range.empty() || range == whole; });
}

bool Holds(const Stage& stage, int segment) {
  return segment >= stage.first_segment && segment < stage.last_segment;
}

class Checker {
 public:
  Checker(const graph::Graph& graph, const Stage& stage, const StageGraph& group)
      : graph_(graph),
        stage_(stage),
        group_(group),
        sharded_(group.sharded) {}

  Status Run() const {
    for (const graph::Step& step : sharded_.order) {
      if (step.node >= 0 && Holds(stage_, sharded_.graph.node(step.node).segment)) {
        HEDDLE_RETURN_IF_ERROR(CheckNode(step.node));
      } else if (step.exchange >= 0) {
        HEDDLE_RETURN_IF_ERROR(
            VerifyExchange(sharded_, sharded_.exchanges[static_cast<size_t>(step.exchange)]));
      }
    }
    for (const auto& [id, part] : sharded_.edges) {
      const Sharding& parts = ShardingOf(part);
      const graph::TensorType& type = graph_.tensor(id).type;
      if (parts.kind != Kind::kShard || TypeOf(part) != type ||
          !graph::Tiles(parts.held, graph::ExtentOf(type.shape, parts.dim))) {
        return InternalError("{} leaves the group, or comes to it, but is {} and not in parts",
                             graph_.tensor(id).name, KindName(parts));
      }
    }
    if (ShardingOf(group_.loss).kind != Kind::kReplicate) {
      return InternalError("the loss is {}", KindName(ShardingOf(group_.loss)));
    }
    for (size_t p = 0; p < graph_.parameters.size(); ++p) {
      HEDDLE_RETURN_IF_ERROR(CheckContributions(static_cast<graph::ParameterId>(p)));
    }
    return Status::Ok();
  }

 private:
  const Sharding& ShardingOf(TensorId id) const {
    return sharded_.shardings[static_cast<size_t>(id)];
  }
  const graph::TensorType& TypeOf(TensorId id) const { return sharded_.graph.tensor(id).type; }

  std::vector<graph::TensorType> TypesOf(const std::vector<TensorId>& ids) const {
    std::vector<graph::TensorType> types;
    for (const TensorId id : ids) {
      types.push_back(TypeOf(id));
    }
    return types;
  }

  // Whether members have of a tensor what the rule says; addends of all elements may lie anywhere.
  bool Fits(TensorId id, const Placement& placement, const Division& division) const {
    const Sharding& has = ShardingOf(id);
    const auto wanted = graph::ShardingOf(placement, TypeOf(id).shape, division);
    if (!wanted || !wanted->partial() || !has.partial()) {
      return wanted && graph::Alike(has, *wanted);
    }
    return graph::Alike(has, *wanted) ||
           (has.op == wanted->op && wanted->dim < 0 && HasAllRows(has, TypeOf(id).shape) &&
            std::ranges::equal(has.held, wanted->held, {}, &Range::empty, &Range::empty));
  }

  bool Follows(const Node& node, const ShardingRule& rule, const Division& division) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Fits(node.inputs[i], rule.inputs[i], division)) {
        return false;
      }
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!Fits(node.outputs[o], rule.outputs[o], division)) {
        return false;
      }
    }
    return true;
  }

  // The rule of the operator that is `chosen`, with its attributes; null: there is none.
  static const ShardingRule* Find(const std::vector<ShardingRule>& rules,
                                  const ShardingRule& chosen) {
    const auto found = std::ranges::find_if(rules, [&](const ShardingRule& rule) {
      return rule.inputs == chosen.inputs && rule.outputs == chosen.outputs &&
             rule.scaled == chosen.scaled && rule.first == chosen.first &&
             rule.given == chosen.given;
    });
    return found == rules.end() ? nullptr : &*found;
  }

  Status CheckNode(NodeId id) const {
    const Node& node = sharded_.graph.node(id);
    const Division& division = sharded_.divisions[static_cast<size_t>(id)];
    const std::string& name = sharded_.graph.tensor(node.outputs.front()).name;
    const std::vector<ShardingRule> rules =
        node.op->ShardingRules(TypesOf(node.inputs), TypesOf(node.outputs), node.attributes);
    const ShardingRule* const rule = Find(rules, sharded_.rules[static_cast<size_t>(id)]);
    if (rule == nullptr) {
      return InternalError("node {} ({}): {} has no such rule", id, name, node.op->name());
    }
    if (!Follows(node, *rule, division)) {
      std::string text;
      for (const TensorId input : node.inputs) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", sharded_.graph.tensor(input).name,
                            KindName(ShardingOf(input)));
      }
      return InternalError("node {} ({}): its rule does not read and write what members have: {}",
                           id, name, text);
    }
    const bool all_run =
        std::ranges::none_of(division.shares, [](const Range& share) { return share.empty(); });
    const bool adds = std::ranges::any_of(
        rule->outputs, [](const Placement& output) { return output.kind == Kind::kPartial; });
    const bool cuts = std::ranges::any_of(
        rule->inputs, [](const Placement& p) { return p.kind == Kind::kShard && !p.cover; });
    for (const TensorId output : node.outputs) {
      if (!all_run && ShardingOf(output).kind == Kind::kReplicate) {
        return InternalError("node {} ({}): a member without a share has the whole of it", id,
                             name);
      }
    }
    if (adds && cuts && !graph::Tiles(division.shares, division.units)) {
      return InternalError("node {} ({}): a unit is twice in its sum, or missing", id, name);
    }
    return Status::Ok();
  }

  // Each use of a parameter within the stage gives each piece once: one copy, or all addends.
  Status CheckContributions(graph::ParameterId id) const {
    const graph::Parameter& parameter = graph_.parameter(id);
    std::set<int> uses;
    for (const TensorId gradient : parameter.gradients) {
      const graph::Tensor& tensor = graph_.tensor(gradient);
      if (Holds(stage_, graph_.node(tensor.producer).segment)) {
        uses.insert(tensor.use);
      }
    }
    const Sharding& placed = ShardingOf(parameter.compute);
    std::vector<std::optional<Box>> boxes;
    for (int q = 0; q < sharded_.members; ++q) {
      boxes.push_back(graph::BoxOf(placed, parameter.shape, q));
    }
    const std::vector<HeldPiece> pieces = PiecesOf(boxes);
    std::map<std::pair<int, int>, int> counted;  // By use and piece.
    for (const auto& [tensor, list] : group_.contributions) {
      for (const Contribution& one : list) {
        if (one.parameter == id) {
          ++counted[{one.use, one.piece}];
          HEDDLE_RETURN_IF_ERROR(CheckContribution(tensor, one, pieces));
        }
      }
    }
    const size_t expected = uses.size() * pieces.size();
    const bool once = std::ranges::all_of(counted, [&](const auto& entry) {
      return entry.second == 1 && uses.count(entry.first.first) > 0;
    });
    if (!once || counted.size() != (uses.empty() ? 0 : expected)) {
      return InternalError("the gradient of {} is not counted once", parameter.name);
    }
    return Status::Ok();
  }

  Status CheckContribution(TensorId tensor,
                           const Contribution& one,
                           const std::vector<HeldPiece>& pieces) const {
    const Sharding& sharding = ShardingOf(tensor);
    const graph::Parameter& parameter = graph_.parameter(one.parameter);
    const HeldPiece& piece = pieces[static_cast<size_t>(one.piece)];
    std::vector<int> have;
    for (int q = 0; q < sharded_.members; ++q) {
      const std::optional<Box> box = graph::BoxOf(sharding, parameter.shape, q);
      if (box && *box == piece.box) {
        have.push_back(q);
      } else if (box && sharding.partial() && Intersect(*box, piece.box)) {
        return InternalError("addends of {} do not end where piece {} of {} does",
                             sharded_.graph.tensor(tensor).name, one.piece, parameter.name);
      }
    }
    if (sharding.partial()
            ? one.members != have
            : one.members.size() != 1 || !std::ranges::binary_search(have, one.members.front())) {
      return InternalError("piece {} of {}: {} of members' parts of {} are counted, {} are {}",
                           one.piece, parameter.name, one.members.size(),
                           sharded_.graph.tensor(tensor).name, have.size(), KindName(sharding));
    }
    return Status::Ok();
  }

  const graph::Graph& graph_;
  const Stage& stage_;
  const StageGraph& group_;
  const ShardedGraph& sharded_;
};

// Whether every member gets only what it has itself.
bool IsWithin(const Exchange& exchange) {
  return std::ranges::equal(exchange.sent, exchange.received, &Range::contains);
}

}  // namespace

Status VerifyExchange(const ShardedGraph& sharded, const Exchange& exchange) {
  const auto known = [&](TensorId id) {
    return id >= 0 && static_cast<size_t>(id) < sharded.shardings.size();
  };
  if (!known(exchange.from) || !known(exchange.to)) {
    return InternalError("an exchange of tensor {} to {} names no tensor", exchange.from,
                         exchange.to);
  }
  const graph::Tensor& tensor = sharded.graph.tensor(exchange.to);
  const std::string& source = sharded.graph.tensor(exchange.from).name;
  const Sharding& from = sharded.shardings[static_cast<size_t>(exchange.from)];
  const Sharding& to = sharded.shardings[static_cast<size_t>(exchange.to)];
  const auto refuse = [&](std::string_view why) {
    return InternalError("{} of {} ({}) to {} ({}): {}", FormName(exchange.form), source,
                         KindName(from), tensor.name, KindName(to), why);
  };
  const Shape& shape = tensor.type.shape;
  if (sharded.graph.tensor(exchange.from).type != tensor.type) {
    return refuse("they are of two types");
  }
  const int dim = std::max(to.kind == Kind::kShard ? to.dim : from.dim, 0);
  if (exchange.dim != dim) {
    return refuse(fmt::format("along dimension {}, expected {}", exchange.dim, dim));
  }
  const bool sums = from.partial() && from.op == graph::ReduceOp::kSum;
  bool fits = false;
  switch (exchange.form) {
    case ExchangeForm::kSum:
      fits = sums && to.kind == Kind::kReplicate;
      break;
    case ExchangeForm::kMax:
      fits = from.partial() && !sums && to.kind == Kind::kReplicate;
      break;
    case ExchangeForm::kScatter:
      fits = sums && to.kind == Kind::kShard && (from.dim == to.dim || HasAllRows(from, shape));
      break;
    case ExchangeForm::kGather:
      fits = from.kind == Kind::kShard && to.kind == Kind::kReplicate;
      break;
    case ExchangeForm::kSlice:
      fits = !from.partial() && to.kind == Kind::kShard && IsWithin(exchange);
      break;
    case ExchangeForm::kFill:
      fits = sums && to.partial() && to.op == from.op && HasAllRows(from, shape) &&
             std::ranges::equal(from.held, to.held, [](const Range& has, const Range& gets) {
               return has.empty() || !gets.empty();
             });
      break;
  }
  if (!fits) {
    return refuse("this form does not make the one of the other");
  }
  if (exchange.sent != graph::RangesAlong(from, dim, shape, sharded.members) ||
      exchange.received != graph::RangesAlong(to, dim, shape, sharded.members)) {
    return refuse("its extents are not those that members have");
  }
  return Status::Ok();
}

Status VerifyStageGraph(const graph::Graph& graph, const Stage& stage, const StageGraph& group) {
  return Checker(graph, stage, group).Run();
}

}  // namespace heddle::program
