#include <algorithm>

#include "engine/graph/operator.h"
#include "tests/support/graph/exchange_values.h"
#include "tests/support/program/interpreter.h"

namespace heddle::testing {

using graph::ExchangeForm;
using program::Code;
using program::Instruction;
using program::SlotId;
using Worker = InterpretedWorker;
using Value = InterpretedValue;
using Call = InterpretedExchange;
using Reduction = InterpretedReduction;

/// The value of a slot, or for -1 of the parameter whose tensor is named.
const DenseTensor* Interpreter::Read(Worker& worker, SlotId slot, graph::TensorId tensor) {
  if (slot < 0) {
    const auto held = worker.parameters.find(worker.graph->tensor(tensor).parameter);
    if (held == worker.parameters.end()) {
      Refuse(worker, "reads a parameter that it does not hold");
      return nullptr;
    }
    for (const program::Piece& piece : worker.program->pieces) {
      if (piece.parameter == held->first && piece.kept &&
          !worker.gathered.contains(piece.parameter)) {
        Refuse(worker, "reads a compute copy that is not gathered");
        return nullptr;
      }
    }
    return &held->second.master;
  }
  const auto found = worker.slots.find(slot);
  if (found == worker.slots.end() || found->second.in_flight) {
    Refuse(worker, fmt::format("slot {} is {}", slot,
                               found == worker.slots.end() ? "not live" : "in flight"));
    return nullptr;
  }
  return &found->second.tensor;
}

void Interpreter::Put(Worker& worker, SlotId slot, DenseTensor tensor, bool in_flight) {
  const graph::TensorType& type = worker.program->slots[static_cast<size_t>(slot)].type;
  if (tensor.shape != type.shape) {
    Refuse(worker, fmt::format("slot {} is {}, not {}", slot, ToString(tensor.shape),
                               graph::ToString(type)));
  }
  if (!worker.slots.emplace(slot, Value{.tensor = std::move(tensor), .in_flight = in_flight})
           .second) {
    Refuse(worker, fmt::format("slot {} is written twice", slot));
  }
}

void Interpreter::Load(Worker& worker, const Instruction& instruction) {
  const SlotId slot = instruction.outputs[0];
  const bool tokens =
      worker.program->slots[static_cast<size_t>(slot)].tensor == worker.graph->tokens;
  const auto& source = tokens ? step_.tokens : step_.targets;
  Put(worker, slot, source[static_cast<size_t>(instruction.microbatch)]);
}

void Interpreter::RunNode(Worker& worker, const Instruction& instruction) {
  const graph::Node& node = worker.graph->node(instruction.node);
  std::vector<DenseTensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const DenseTensor* const input = Read(worker, instruction.inputs[i], node.inputs[i]);
    if (input == nullptr) {
      return;
    }
    if (input->shape != worker.graph->tensor(node.inputs[i]).type.shape) {
      return Refuse(worker, fmt::format("input {} has another shape than its tensor", i));
    }
    inputs.push_back(*input);
  }
  DenseContext context = step_.context;
  context.first_sample += instruction.microbatch * graph_.tensor(graph_.tokens).type.shape[0];
  auto outputs = Evaluate(node.op->name(), node.attributes, inputs, context);
  for (size_t i = 0; i < outputs.size(); ++i) {
    Put(worker, instruction.outputs[i], std::move(outputs[i]));
  }
}

void Interpreter::Issue(Worker& worker, const Instruction& instruction) {
  const auto& exchange = worker.program->exchanges[static_cast<size_t>(instruction.exchange)];
  const auto position = static_cast<size_t>(
      std::ranges::find(instruction.group, worker.program->rank) - instruction.group.begin());
  std::optional<DenseTensor> input;
  if (!instruction.inputs.empty()) {
    if (const DenseTensor* const value = Read(worker, instruction.inputs[0], exchange.from)) {
      input = *value;
    }
  }
  if (position >= exchange.sent.size() || input.has_value() == exchange.sent[position].empty() ||
      instruction.outputs.empty() != exchange.received[position].empty()) {
    return Refuse(worker, "has another part in an exchange than the exchange says");
  }
  worker.exchanges.emplace_back(instruction.tag, instruction.exchange);
  Call& call = calls_[{instruction.group, instruction.tag}];
  if (call.first == nullptr) {
    call.first = &instruction;
    call.exchange = &exchange;
  }
  if (!(exchange == *call.exchange) || !call.arrived.emplace(position, input).second) {
    return Refuse(worker, "makes another exchange than the others, or makes it twice");
  }
  if (instruction.outputs.empty()) {
    return;
  }
  const SlotId slot = instruction.outputs[0];
  const Shape& shape = worker.graph->tensor(exchange.to).type.shape;
  if (exchange.form == ExchangeForm::kSlice || exchange.form == ExchangeForm::kFill) {
    std::vector<std::optional<DenseTensor>> sent(instruction.group.size());
    sent[position] = input;
    std::string why;
    DenseTensor made = MakeExchange(exchange, sent, position, shape, why);
    if (!why.empty()) {
      return Refuse(worker, why);
    }
    return Put(worker, slot, std::move(made));
  }
  worker.calls[slot] = {&call, position};
  Put(worker, slot, DenseTensor(shape), /*in_flight=*/true);
}

/// False: some member has not come to the exchange yet.
bool Interpreter::Await(Worker& worker, SlotId slot) {
  const auto found = worker.calls.find(slot);
  if (found == worker.calls.end() || !worker.slots.contains(slot) ||
      !worker.slots[slot].in_flight) {
    Refuse(worker, fmt::format("awaits slot {}, which is not in flight", slot));
    return true;
  }
  const auto [call, position] = found->second;
  if (call->arrived.size() < call->first->group.size()) {
    return false;
  }
  std::vector<std::optional<DenseTensor>> sent;
  for (const auto& [member, input] : call->arrived) {
    sent.push_back(input);
  }
  std::string why;
  Value& value = worker.slots[slot];
  value.tensor = MakeExchange(*call->exchange, sent, position, value.tensor.shape, why);
  value.in_flight = false;
  if (!why.empty()) {
    Refuse(worker, why);
  }
  return true;
}

void Interpreter::Fold(Worker& worker, const Instruction& instruction) {
  const DenseTensor* const left = Read(worker, instruction.inputs[0], -1);
  const DenseTensor* const right = Read(worker, instruction.inputs[1], -1);
  if (left == nullptr || right == nullptr || left->shape != right->shape) {
    return Refuse(worker, "adds what does not fit");
  }
  DenseTensor& sum = worker.slots[instruction.inputs[0]].tensor;
  for (size_t e = 0; e < right->values.size(); ++e) {
    sum.values[e] += right->values[e];
  }
}

void Interpreter::Reduce(Worker& worker, const Instruction& instruction) {
  Reduction& reduction = reductions_[instruction.tag];
  if (reduction.arrived.empty()) {
    reduction.group = instruction.group;
  }
  std::vector<DenseTensor> inputs;
  for (const SlotId slot : instruction.inputs) {
    if (const DenseTensor* const input = Read(worker, slot, -1)) {
      inputs.push_back(*input);
    }
  }
  if (reduction.group != instruction.group ||
      !reduction.arrived.emplace(worker.program->rank, std::move(inputs)).second) {
    Refuse(worker, "disagrees about a reduction, or takes part twice");
  }
  for (const SlotId slot : instruction.outputs) {
    Put(worker, slot, DenseTensor(worker.program->slots[static_cast<size_t>(slot)].type.shape),
        /*in_flight=*/true);
  }
}

void Interpreter::Gather(Worker& worker, const Instruction& instruction) {
  const auto key = std::pair(instruction.parameter, instruction.piece);
  const auto piece = std::ranges::find_if(worker.program->pieces, [&](const program::Piece& one) {
    return std::pair(one.parameter, one.index) == key && one.kept;
  });
  if (piece == worker.program->pieces.end()) {
    return Refuse(worker, "gathers a piece of which it does not keep some rows");
  }
  const Box held = HeldBox(*worker.program, graph_, instruction.parameter);
  InterpretedGather& gather = gathers_[key];
  if (gather.arrived.empty()) {
    gather.group = instruction.group;
  }
  DenseTensor rows =
      TakeBox(worker.parameters.at(instruction.parameter).master, Within(held, *piece->kept));
  if (gather.group != instruction.group ||
      !gather.arrived.emplace(worker.program->rank, std::move(rows)).second) {
    Refuse(worker, "disagrees about a gather, or takes part twice");
  }
}

/// False: some holder has not come to a gather yet.
bool Interpreter::AwaitGathers(Worker& worker, graph::ParameterId parameter) {
  const Box held = HeldBox(*worker.program, graph_, parameter);
  for (const program::Piece& piece : worker.program->pieces) {
    if (piece.parameter != parameter || !piece.kept) {
      continue;
    }
    const InterpretedGather& gather = gathers_[{parameter, piece.index}];
    if (!gather.arrived.contains(worker.program->rank)) {
      Refuse(worker, "awaits a gather that it has not issued");
      return true;
    }
    if (gather.arrived.size() < gather.group.size()) {
      return false;
    }
    Box box = Within(held, piece.box);
    DenseTensor& master = worker.parameters.at(parameter).master;
    std::vector<bool> none(master.values.size(), false);
    for (const auto& [rank, rows] : gather.arrived) {
      box.extent = rows.shape;
      PutBox(rows, box, master, none);
      box.offset[0] += rows.shape[0];
    }
  }
  worker.gathered.insert(parameter);
  return true;
}

void Interpreter::Free(Worker& worker, SlotId slot) {
  const auto found = worker.slots.find(slot);
  if (found == worker.slots.end() || found->second.in_flight) {
    return Refuse(worker, fmt::format("frees slot {}, which is {}", slot,
                                      found == worker.slots.end() ? "not live" : "in flight"));
  }
  worker.slots.erase(found);
}

/// False: it has to wait.
bool Interpreter::Execute(Worker& worker, const Instruction& instruction) {
  const int rank = worker.program->rank;
  switch (instruction.code) {
    case Code::kLoad:
      Load(worker, instruction);
      return true;
    case Code::kRun:
      RunNode(worker, instruction);
      return true;
    case Code::kSend:
      if (const DenseTensor* const value = Read(worker, instruction.inputs[0], -1)) {
        if (!messages_.emplace(std::tuple(rank, instruction.peer, instruction.tag), *value)
                 .second) {
          Refuse(worker, "sends a message twice");
        }
      }
      return true;
    case Code::kRecv: {
      const auto message = messages_.find({instruction.peer, rank, instruction.tag});
      if (message == messages_.end()) {
        return false;
      }
      Put(worker, instruction.outputs[0], message->second);
      return true;
    }
    case Code::kExchange:
      Issue(worker, instruction);
      return true;
    case Code::kGather:
      Gather(worker, instruction);
      return true;
    case Code::kAwait:
      return instruction.parameter >= 0 ? AwaitGathers(worker, instruction.parameter)
                                        : Await(worker, instruction.inputs[0]);
    case Code::kFold:
      Fold(worker, instruction);
      return true;
    case Code::kReduce:
      Reduce(worker, instruction);
      return true;
    case Code::kFree:
      Free(worker, instruction.inputs[0]);
      return true;
    case Code::kVote:
    case Code::kUpdate:
      break;
  }
  Refuse(worker, "does not belong before the vote");
  return true;
}

/// Runs until the worker has to wait or votes; whether it did anything.
bool Interpreter::Advance(Worker& worker) {
  bool moved = false;
  while (worker.next < worker.program->vote_index && outcome_.refused.empty() &&
         Execute(worker, worker.program->instructions[worker.next])) {
    ++worker.next;
    moved = true;
  }
  return moved;
}

}  // namespace heddle::testing
