#include "engine/graph/sharding/complete.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/sharding/choose.h"

namespace heddle::graph {
namespace {

using Kind = Placement::Kind;

class Completer {
 public:
  Completer(const Graph& graph, const Layout& layout, const std::map<TensorId, Sharding>& edges);

  ShardedGraph Run() &&;

 private:
  Operand OperandOf(TensorId id) const;
  Target TargetOf(TensorId id) const;
  Choice ChoiceOf(const Node& node) const;
  std::vector<OperatorPart> PartsOf(const Node& node) const;
  Price PriceOf(const Node& node, const std::vector<OperatorPart>& parts) const;
  void RunParts(NodeId id, const std::vector<OperatorPart>& parts);
  void Apply(NodeId id, const Choice& choice);
  void Place(TensorId output);
  TensorId Obtain(TensorId id, const Sharding& wanted);
  TensorId AddExchange(ExchangeForm form, TensorId original, TensorId from, const Sharding& wanted);
  TensorId AddTensor(Tensor tensor, Sharding sharding);
  void FindReaders();

  Sharding& sharding(TensorId id) { return result_.shardings[static_cast<size_t>(id)]; }
  std::vector<TensorId>& versions(TensorId id) { return versions_[static_cast<size_t>(id)]; }

  ShardedGraph result_;
  std::map<TensorId, Sharding> placed_;          ///< Activations that the layout places.
  std::map<TensorId, Sharding> edges_;           ///< What members send or receive.
  std::vector<std::vector<TensorId>> versions_;  ///< By tensor: its forms, see Operand.
};

Completer::Completer(const Graph& graph,
                     const Layout& layout,
                     const std::map<TensorId, Sharding>& edges) {
  result_.graph = graph;
  result_.members = MembersOf(layout);
  result_.shardings.resize(graph.tensors.size());
  result_.rules.resize(graph.nodes.size());
  result_.divisions.resize(graph.nodes.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const auto id = static_cast<TensorId>(i);
    versions_.push_back({id});
    const auto it = layout.tensors.find(tensor.name);
    if (it == layout.tensors.end() || result_.members == 1) {
      continue;
    }
    const Sharding sharding = ShardingOf(it->second, tensor.type.shape, layout);
    if (tensor.kind == TensorKind::kParameter) {
      result_.shardings[i] = sharding;
    } else {
      placed_[id] = sharding;
    }
  }
  if (result_.members == 1) {
    return;
  }
  for (const auto& [id, sharding] : edges) {
    const auto placed = placed_.find(id);
    edges_[id] =
        placed != placed_.end() && Alike(placed->second, sharding) ? placed->second : sharding;
  }
}

Operand Completer::OperandOf(TensorId id) const {
  const Tensor& tensor = result_.graph.tensor(id);
  Operand operand{
      .type = tensor.type, .parameter = tensor.kind == TensorKind::kParameter, .versions = {}};
  for (const TensorId version : versions_[static_cast<size_t>(id)]) {
    operand.versions.push_back(result_.shardings[static_cast<size_t>(version)]);
  }
  return operand;
}

Target Completer::TargetOf(TensorId id) const {
  const Tensor& tensor = result_.graph.tensor(id);
  Target target{.type = tensor.type, .placed = std::nullopt, .parameter = std::nullopt};
  if (const auto edge = edges_.find(id); edge != edges_.end()) {
    target.placed = edge->second;
  } else if (const auto it = placed_.find(id); it != placed_.end()) {
    target.placed = it->second;
  }
  if (tensor.kind == TensorKind::kWeightGradient) {
    const TensorId compute = result_.graph.parameter(tensor.parameter).compute;
    target.parameter = result_.shardings[static_cast<size_t>(compute)];
  }
  return target;
}

Choice Completer::ChoiceOf(const Node& node) const {
  std::vector<Operand> operands;
  for (const TensorId id : node.inputs) {
    operands.push_back(OperandOf(id));
  }
  std::vector<Target> targets;
  for (const TensorId id : node.outputs) {
    targets.push_back(TargetOf(id));
  }
  return Choose(*node.op, node.attributes, operands, targets);
}

std::vector<OperatorPart> Completer::PartsOf(const Node& node) const {
  std::vector<TensorType> inputs;
  for (const TensorId id : node.inputs) {
    inputs.push_back(result_.graph.tensor(id).type);
  }
  return node.op->Parts(inputs, node.attributes);
}

/// The output types of a part; its inputs are checked by the operator that names them.
std::vector<TensorType> Infer(const OperatorPart& part, const std::vector<TensorType>& inputs) {
  const Operator* const op = FindOperator(part.op);
  HEDDLE_CHECK(op != nullptr, "no operator is named '{}'", part.op);
  auto types = op->Infer(inputs, part.attributes);
  HEDDLE_CHECK(types.ok(), "{}", types.status().ToString());
  return *std::move(types);
}

/// An exchange that two parts could share counts twice.
Price Completer::PriceOf(const Node& node, const std::vector<OperatorPart>& parts) const {
  std::vector<Operand> values;
  for (const TensorId id : node.inputs) {
    values.push_back(OperandOf(id));
  }
  Price price;
  for (const OperatorPart& part : parts) {
    std::vector<Operand> operands;
    std::vector<TensorType> types;
    for (const int input : part.inputs) {
      operands.push_back(values[static_cast<size_t>(input)]);
      types.push_back(operands.back().type);
    }
    std::vector<Target> targets;
    for (TensorType& type : Infer(part, types)) {
      targets.push_back({.type = std::move(type), .placed = {}, .parameter = {}});
    }
    if (&part == &parts.back()) {
      for (size_t o = 0; o < targets.size(); ++o) {
        targets[o] = TargetOf(node.outputs[o]);
      }
    }
    const Choice choice = Choose(*FindOperator(part.op), part.attributes, operands, targets);
    price.misplaced += choice.price.misplaced;
    price.bytes += choice.price.bytes;
    for (size_t o = 0; o < targets.size(); ++o) {
      values.push_back(
          {.type = targets[o].type, .parameter = false, .versions = {choice.outputs[o]}});
    }
  }
  return price;
}

TensorId Completer::AddTensor(Tensor tensor, Sharding sharding) {
  const auto id = static_cast<TensorId>(result_.graph.tensors.size());
  result_.graph.tensors.push_back(std::move(tensor));
  result_.shardings.push_back(std::move(sharding));
  versions_.push_back({id});
  return id;
}

/// The first part keeps the node's id, the last part its outputs.
void Completer::RunParts(NodeId id, const std::vector<OperatorPart>& parts) {
  const Node whole = result_.graph.node(id);
  std::vector<TensorId> values = whole.inputs;
  for (const OperatorPart& part : parts) {
    const bool first = &part == &parts.front();
    const bool last = &part == &parts.back();
    const NodeId here = first ? id : static_cast<NodeId>(result_.graph.nodes.size());
    Node node{.op = FindOperator(part.op),
              .attributes = part.attributes,
              .inputs = {},
              .outputs = {},
              .segment = whole.segment,
              .phase = whole.phase};
    std::vector<TensorType> types;
    for (const int input : part.inputs) {
      node.inputs.push_back(values[static_cast<size_t>(input)]);
      types.push_back(result_.graph.tensor(node.inputs.back()).type);
    }
    if (last) {
      node.outputs = whole.outputs;
    }
    for (TensorType& type : last ? std::vector<TensorType>{} : Infer(part, types)) {
      const std::string& name = result_.graph.tensor(whole.outputs[0]).name;
      node.outputs.push_back(AddTensor({.name = fmt::format("{}.{}", name, part.op),
                                        .type = std::move(type),
                                        .kind = TensorKind::kActivation},
                                       {}));
    }
    for (const TensorId output : node.outputs) {
      result_.graph.tensors[static_cast<size_t>(output)].producer = here;
      values.push_back(output);
    }
    if (first) {
      result_.graph.nodes[static_cast<size_t>(id)] = node;
    } else {
      result_.graph.nodes.push_back(node);
      result_.rules.emplace_back();
      result_.divisions.emplace_back();
    }
    Apply(here, ChoiceOf(node));
  }
}

void Completer::Apply(NodeId id, const Choice& choice) {
  const auto index = static_cast<size_t>(id);
  const Node node = result_.graph.node(id);
  bool gathered = choice.price.misplaced > 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    gathered = gathered || sharding(versions(node.inputs[i])[0]).kind == Kind::kShard;
    const TensorId input = Obtain(node.inputs[i], choice.inputs[i]);
    result_.graph.nodes[index].inputs[i] = input;
  }
  result_.rules[index] = choice.rule;
  result_.divisions[index] = choice.division;
  result_.order.push_back({.node = id});
  if (choice.price.rule == 0 && gathered) {
    result_.replicated.push_back(result_.graph.tensor(node.outputs[0]).name);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const TensorId output = node.outputs[o];
    sharding(output) = choice.outputs[o];
    Place(output);
  }
}

/// Makes the one form of a tensor that its readers have it from.
void Completer::Place(TensorId output) {
  const auto take = [&](const Sharding& wanted) {
    const TensorId made = Obtain(output, wanted);
    versions(output) = {made};
    return made;
  };
  const auto edge = edges_.find(output);
  if (edge != edges_.end()) {
    result_.edges[output] = take(edge->second);
  }
  if (const auto placed = placed_.find(output); placed != placed_.end()) {
    take(placed->second);
  } else if (edge != edges_.end()) {
    take({});
  }
}

/// The tensor that has the value of `id` as `wanted`.
TensorId Completer::Obtain(TensorId id, const Sharding& wanted) {
  const auto way = WayTo(OperandOf(id), wanted);
  HEDDLE_CHECK(way, "'{}' has no such addends", result_.graph.tensor(id).name);
  const TensorId from = way->through_whole ? Obtain(id, {}) : versions(id)[way->version];
  return way->form ? AddExchange(*way->form, id, from, wanted) : from;
}

TensorId Completer::AddExchange(ExchangeForm form,
                                TensorId original,
                                TensorId from,
                                const Sharding& wanted) {
  const Tensor tensor = result_.graph.tensor(original);
  const bool computed =
      tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kGradient;
  const TensorId to = AddTensor(
      {.name = fmt::format("{}.{}.{}", tensor.name, FormName(form), versions(original).size()),
       .type = tensor.type,
       .kind = computed ? tensor.kind : TensorKind::kActivation},
      wanted);
  versions(original).push_back(to);
  const int dim = std::max(wanted.kind == Kind::kShard ? wanted.dim : sharding(from).dim, 0);
  auto ranges = [&](const Sharding& held) {
    return RangesAlong(held, dim, tensor.type.shape, result_.members);
  };
  result_.order.push_back({.exchange = static_cast<int>(result_.exchanges.size())});
  result_.exchanges.push_back({.form = form,
                               .from = from,
                               .to = to,
                               .dim = dim,
                               .sent = ranges(sharding(from)),
                               .received = ranges(wanted)});
  return to;
}

/// What an exchange reads of another one is needed by its own first reader.
void Completer::FindReaders() {
  std::map<TensorId, size_t> first;  // Steps, by the tensor that they read.
  for (size_t i = 0; i < result_.order.size(); ++i) {
    if (const NodeId node = result_.order[i].node; node >= 0) {
      for (const TensorId input : result_.graph.node(node).inputs) {
        first.emplace(input, i);
      }
    }
  }
  for (size_t i = result_.exchanges.size(); i > 0; --i) {
    Exchange& exchange = result_.exchanges[i - 1];
    if (const auto it = first.find(exchange.to); it != first.end()) {
      const size_t step = it->second;
      exchange.reader = result_.order[step].node;
      size_t& source = first.emplace(exchange.from, step).first->second;
      source = std::min(source, step);
    }
  }
}

ShardedGraph Completer::Run() && {
  const auto count = static_cast<NodeId>(result_.graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node node = result_.graph.node(id);
    const Choice choice = ChoiceOf(node);
    const std::vector<OperatorPart> parts = PartsOf(node);
    const Price& price = choice.price;
    if (!parts.empty() && (price.misplaced > 0 || price.bytes > 0)) {
      const Price of_parts = PriceOf(node, parts);
      if (std::pair(of_parts.misplaced, of_parts.bytes) < std::pair(price.misplaced, price.bytes)) {
        RunParts(id, parts);
        continue;
      }
    }
    Apply(id, choice);
  }
  FindReaders();
  return std::move(result_);
}

}  // namespace

Result<ShardedGraph> Complete(const Graph& graph,
                              const Layout& layout,
                              const std::map<TensorId, Sharding>& edges) {
  HEDDLE_RETURN_IF_ERROR(ValidateLayout(graph, layout, /*exact=*/false));
  return Completer(graph, layout, edges).Run();
}

}  // namespace heddle::graph
