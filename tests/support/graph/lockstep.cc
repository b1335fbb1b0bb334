#include "tests/support/graph/lockstep.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tests/support/graph/exchange_values.h"

namespace heddle::testing {
namespace {

using graph::Exchange;
using graph::LocalGraph;
using graph::Range;
using graph::TensorId;

bool Near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * (1 + std::abs(b));
}

class Runner {
 public:
  Runner(const std::vector<LocalGraph>& members,
         const std::map<TensorId, DenseTensor>& inputs,
         const DenseContext& context);

  LockstepRun Run() &&;

 private:
  void Refuse(std::string why) {
    if (result_.refused.empty()) {
      result_.refused = std::move(why);
    }
  }
  void RunNodes(size_t member);
  void RunNode(size_t member, const graph::Node& node);
  void Make(const Exchange& exchange);
  void CheckRange(size_t member, TensorId id, int dim, Range range);
  DenseTensor Received(const Exchange& exchange,
                       const std::vector<std::optional<DenseTensor>>& sent,
                       size_t receiver);
  void Store(size_t member, TensorId id, DenseTensor value);
  std::optional<DenseTensor>& Value(size_t member, TensorId id) {
    return result_.tensors[member][static_cast<size_t>(id)];
  }

  const std::vector<LocalGraph>& members_;
  const DenseContext& context_;
  std::vector<size_t> next_;  ///< By member: its next step.
  LockstepRun result_;
};

Runner::Runner(const std::vector<LocalGraph>& members,
               const std::map<TensorId, DenseTensor>& inputs,
               const DenseContext& context)
    : members_(members),
      context_(context),
      next_(members.size()) {
  for (size_t m = 0; m < members.size(); ++m) {
    result_.tensors.emplace_back(members[m].graph.tensors.size());
    for (const auto& [id, whole] : inputs) {
      if (const auto& box = members[m].boxes[static_cast<size_t>(id)]) {
        Value(m, id) = TakeBox(whole, *box);
      }
    }
  }
}

void Runner::Store(size_t member, TensorId id, DenseTensor value) {
  const graph::Tensor& tensor = members_[member].graph.tensor(id);
  if (Value(member, id)) {
    Refuse(fmt::format("'{}' is made twice", tensor.name));
  } else if (value.shape != tensor.type.shape) {
    Refuse(fmt::format("'{}' is {}, its type {}", tensor.name, ToString(value.shape),
                       graph::ToString(tensor.type)));
  }
  Value(member, id) = std::move(value);
}

void Runner::RunNode(size_t member, const graph::Node& node) {
  const graph::Graph& graph = members_[member].graph;
  std::vector<DenseTensor> inputs;
  std::vector<graph::TensorType> types;
  for (const TensorId id : node.inputs) {
    if (!Value(member, id)) {
      return Refuse(fmt::format("'{}' reads '{}', which is not there",
                                graph.tensor(node.outputs[0]).name, graph.tensor(id).name));
    }
    inputs.push_back(*Value(member, id));
    types.push_back(graph.tensor(id).type);
  }
  // The operator itself must accept a share, and expect what it gives.
  const auto inferred = node.op->Infer(types, node.attributes);
  if (!inferred.ok()) {
    return Refuse(inferred.status().message());
  }
  auto outputs = Evaluate(node.op->name(), node.attributes, inputs, context_);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const graph::Tensor& tensor = graph.tensor(node.outputs[o]);
    if ((*inferred)[o] != tensor.type) {
      return Refuse(fmt::format("'{}' is inferred as {}, not {}", tensor.name,
                                graph::ToString((*inferred)[o]), graph::ToString(tensor.type)));
    }
    Store(member, node.outputs[o], std::move(outputs[o]));
  }
}

/// Until the member's next exchange.
void Runner::RunNodes(size_t member) {
  const LocalGraph& local = members_[member];
  size_t& next = next_[member];
  for (; next < local.order.size() && local.order[next].node >= 0; ++next) {
    if (!result_.refused.empty()) {
      return;
    }
    RunNode(member, local.graph.node(local.order[next].node));
  }
}

/// The range must be what the member's box of the tensor is along `dim`.
void Runner::CheckRange(size_t member, TensorId id, int dim, Range range) {
  const std::optional<Box>& box = members_[member].boxes[static_cast<size_t>(id)];
  const std::string& name = members_[member].graph.tensor(id).name;
  if (range.empty() == box.has_value()) {
    return Refuse(fmt::format("member {}: the range of '{}' and its box disagree", member, name));
  }
  const auto d = static_cast<size_t>(dim);
  if (box && (d >= box->offset.size() || box->offset[d] != range.begin ||
              box->offset[d] + box->extent[d] != range.end)) {
    Refuse(fmt::format("member {}: [{}, {}) along {} is not its box {} of '{}'", member,
                       range.begin, range.end, dim, ToString(*box), name));
  }
}

void Runner::Make(const Exchange& exchange) {
  for (size_t m = 0; m < members_.size(); ++m) {
    CheckRange(m, exchange.from, exchange.dim, exchange.sent[m]);
    CheckRange(m, exchange.to, exchange.dim, exchange.received[m]);
    if (!exchange.sent[m].empty() && !Value(m, exchange.from)) {
      Refuse(fmt::format("member {} sends '{}', which is not there", m,
                         members_[m].graph.tensor(exchange.from).name));
    }
  }
  std::vector<std::optional<DenseTensor>> sent;
  for (size_t m = 0; m < members_.size(); ++m) {
    sent.push_back(Value(m, exchange.from));
  }
  std::vector<DenseTensor> received(members_.size());
  for (size_t m = 0; m < members_.size() && result_.refused.empty(); ++m) {
    if (!exchange.received[m].empty()) {
      received[m] = Received(exchange, sent, m);
    }
  }
  for (size_t m = 0; m < members_.size() && result_.refused.empty(); ++m) {
    if (!exchange.received[m].empty()) {
      Store(m, exchange.to, std::move(received[m]));
    }
  }
}

DenseTensor Runner::Received(const Exchange& exchange,
                             const std::vector<std::optional<DenseTensor>>& sent,
                             size_t receiver) {
  const graph::Graph& graph = members_[receiver].graph;
  std::string why;
  DenseTensor made =
      MakeExchange(exchange, sent, receiver, graph.tensor(exchange.to).type.shape, why);
  if (!why.empty()) {
    Refuse(fmt::format("'{}': {}", graph.tensor(exchange.to).name, why));
  }
  return made;
}

LockstepRun Runner::Run() && {
  for (;;) {
    for (size_t m = 0; m < members_.size(); ++m) {
      RunNodes(m);
    }
    if (!result_.refused.empty()) {
      return std::move(result_);
    }
    const Exchange* exchange = nullptr;
    size_t at_end = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      const LocalGraph& local = members_[m];
      if (next_[m] == local.order.size()) {
        ++at_end;
        continue;
      }
      const Exchange& here = local.exchanges[static_cast<size_t>(local.order[next_[m]++].exchange)];
      if (exchange != nullptr && !(here == *exchange)) {
        Refuse("members make unlike exchanges");
      }
      exchange = &here;
    }
    if (at_end == members_.size()) {
      return std::move(result_);
    }
    if (at_end > 0) {
      Refuse("a member makes fewer exchanges");
      return std::move(result_);
    }
    Make(*exchange);
  }
}

/// What the members hold of a tensor, put together; nothing when an element is nobody's, or copies
/// differ.
std::optional<DenseTensor> Assemble(const LockstepRun& run,
                                    const graph::Sharding& sharding,
                                    const std::vector<LocalGraph>& members,
                                    size_t id,
                                    const Shape& shape) {
  DenseTensor whole(shape);
  std::vector<bool> has(whole.values.size(), false);
  bool agree = true;
  for (size_t m = 0; m < members.size(); ++m) {
    const auto& box = members[m].boxes[id];
    const auto& part = run.tensors[m][id];
    if (box.has_value() != part.has_value()) {
      return std::nullopt;
    }
    if (!box) {
      continue;
    }
    ForEachIn(*box, shape, [&](int64_t from, int64_t to) {
      const double value = (*part)[from];
      const auto known = has[static_cast<size_t>(to)];
      agree = agree && (sharding.partial() || !known || Near(value, whole[to]));
      if (!known || !sharding.partial()) {
        whole[to] = value;
      } else {
        whole[to] =
            sharding.op == graph::ReduceOp::kSum ? whole[to] + value : std::max(whole[to], value);
      }
      has[static_cast<size_t>(to)] = true;
    });
  }
  const bool complete = std::ranges::find(has, false) == has.end();
  return agree && complete ? std::optional(whole) : std::nullopt;
}

/// How a tensor that was put together is not as expected; empty: it is.
std::string Unlike(const std::optional<DenseTensor>& made, const DenseTensor& expected) {
  if (!made) {
    return "it is not complete, or its copies differ";
  }
  for (int64_t e = 0; e < ElementCount(made->shape); ++e) {
    if (!Near((*made)[e], expected[e])) {
      return fmt::format("element {} is {}, expected {}", e, (*made)[e], expected[e]);
    }
  }
  return "";
}

}  // namespace

LockstepRun RunLockstep(const std::vector<LocalGraph>& members,
                        const std::map<TensorId, DenseTensor>& inputs,
                        const DenseContext& context) {
  return Runner(members, inputs, context).Run();
}

std::string Difference(const LockstepRun& run,
                       const graph::ShardedGraph& sharded,
                       const std::vector<LocalGraph>& members,
                       const std::vector<DenseTensor>& expected) {
  auto value = [&](size_t id) {
    return Assemble(run, sharded.shardings[id], members, id, sharded.graph.tensors[id].type.shape);
  };
  for (size_t id = 0; id < expected.size(); ++id) {
    if (const std::string why = Unlike(value(id), expected[id]); !why.empty()) {
      return fmt::format("'{}': {}", sharded.graph.tensors[id].name, why);
    }
  }
  for (const Exchange& exchange : sharded.exchanges) {
    const auto from = value(static_cast<size_t>(exchange.from));
    const auto to = value(static_cast<size_t>(exchange.to));
    if (const std::string why = from ? Unlike(to, *from) : "its source is not complete";
        !why.empty()) {
      return fmt::format("'{}': {}", sharded.graph.tensor(exchange.to).name, why);
    }
  }
  return "";
}

}  // namespace heddle::testing
