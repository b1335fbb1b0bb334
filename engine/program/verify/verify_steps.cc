// The instructions that VerifyMachine runs.
#include <algorithm>

#include "engine/program/verify/verify_machine.h"

namespace heddle::program {

using graph::Node;
using graph::ParameterId;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

Status VerifyMachine::StepLoad(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 0, 1));
  HEDDLE_RETURN_IF_ERROR(ExpectOwnMicrobatch(rank, instruction.microbatch));
  const SlotId slot = instruction.outputs.front();
  const std::vector<Slot>& slots = program(rank).slots;
  if (slot < 0 || static_cast<size_t>(slot) >= slots.size()) {
    return InternalError("writes slot {}, which does not exist", slot);
  }
  const TensorId tensor = slots[static_cast<size_t>(slot)].tensor;
  if (tensor < 0 || (tensor != graph_.tokens && tensor != graph_.targets)) {
    return InternalError("loads slot {}, which is neither tokens nor targets", slot);
  }
  return Write(rank, slot, tensor, instruction.microbatch,
               TensorValue{.tensor = tensor, .microbatch = instruction.microbatch});
}

Status VerifyMachine::StepRun(int rank, const Instruction& instruction) {
  const graph::Graph& graph = graph_of(rank);
  if (instruction.node < 0 || static_cast<size_t>(instruction.node) >= graph.nodes.size()) {
    return InternalError("node {} does not exist", instruction.node);
  }
  const Node& node = graph.node(instruction.node);
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, node.inputs.size(), node.outputs.size()));
  HEDDLE_RETURN_IF_ERROR(ExpectOwnMicrobatch(rank, instruction.microbatch));
  HEDDLE_RETURN_IF_ERROR(CountRun(rank, instruction));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor& tensor = graph.tensor(node.inputs[i]);
    if (tensor.kind != TensorKind::kParameter) {
      HEDDLE_RETURN_IF_ERROR(
          ReadTensor(rank, instruction.inputs[i], node.inputs[i], instruction.microbatch));
      continue;
    }
    const std::vector<int>& holders = members_.holders()[static_cast<size_t>(tensor.parameter)];
    if (instruction.inputs[i] != -1 || !std::binary_search(holders.begin(), holders.end(), rank)) {
      return InternalError("does not read parameter {} from its own state", tensor.name);
    }
    HEDDLE_RETURN_IF_ERROR(ReadParameter(rank, tensor.parameter));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(WriteOutput(rank, instruction, i, node.outputs[i]));
  }
  return Status::Ok();
}

// Writes what a node or an exchange makes: a tensor, or what counts for a gradient.
Status VerifyMachine::WriteOutput(int rank,
                                  const Instruction& instruction,
                                  size_t output,
                                  TensorId id) {
  SymbolicValue value = TensorValue{.tensor = id, .microbatch = instruction.microbatch};
  const auto sum = [&](ParameterId parameter, int piece, int use, bool copy) {
    const int64_t leaf = use * NumberingOf(parameter).stride + instruction.microbatch;
    value = SumValue{.parameter = parameter,
                     .piece = piece,
                     .copy = copy,
                     .leaves = {{.first = leaf, .last = leaf + 1}},
                     .node = {.level = 0, .index = leaf}};
  };
  const VerifyWorker& self = members_.of(rank);
  if (self.group != nullptr) {
    const auto found = self.group->contributions.find(id);
    if (found != self.group->contributions.end()) {
      for (const Contribution& one : found->second) {
        const bool counts = std::ranges::find(one.members, self.member) != one.members.end();
        if (counts || std::holds_alternative<TensorValue>(value)) {
          sum(one.parameter, one.piece, one.use, !counts);
        }
      }
    }
  } else if (const Tensor& tensor = graph_.tensor(id); tensor.kind == TensorKind::kWeightGradient) {
    sum(tensor.parameter, 0, tensor.use, false);
  }
  return Write(rank, instruction.outputs[output], id, instruction.microbatch, std::move(value));
}

Status VerifyMachine::CountRun(int rank, const Instruction& instruction) {
  const Node& node = graph_of(rank).node(instruction.node);
  const Stage& stage = *StageOfRank(rank);
  if (node.segment < stage.first_segment || node.segment >= stage.last_segment) {
    return InternalError("node {} belongs to another stage", instruction.node);
  }
  if (const StageGraph* const group = members_.of(rank).group) {
    const auto& division = group->sharded.divisions[static_cast<size_t>(instruction.node)];
    if (!division.Runs(members_.of(rank).member)) {
      return InternalError("runs node {}, of which it has no share", instruction.node);
    }
    return CountGroupRun(rank, {false, instruction.node, instruction.microbatch},
                         stage.recompute && node.phase == graph::Phase::kForward);
  }
  uint8_t& runs = runs_[static_cast<size_t>(instruction.node) * static_cast<size_t>(microbatches_) +
                        static_cast<size_t>(instruction.microbatch)];
  const bool again = stage.recompute && node.phase == graph::Phase::kForward;
  if (runs >= (again ? 2 : 1)) {
    return InternalError("runs node {} on microbatch {} once too often", instruction.node,
                         instruction.microbatch);
  }
  ++runs;
  return Status::Ok();
}

Status VerifyMachine::StepSend(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 1, 0));
  HEDDLE_RETURN_IF_ERROR(ExpectPeer(rank, instruction.peer));
  const SlotId slot = instruction.inputs.front();
  HEDDLE_ASSIGN_OR_RETURN(const SymbolicValue* const held, Read(rank, slot));
  SymbolicValue value = *held;
  if (auto* const tensor = std::get_if<TensorValue>(&value)) {
    const TensorId message = members_.of(rank).MessageOf(tensor->tensor);
    if (message < 0) {
      return InternalError("sends {}, which does not leave its group",
                           graph_of(rank).tensor(tensor->tensor).name);
    }
    tensor->tensor = message;
  }
  const MessageKey key{rank, instruction.peer, instruction.tag};
  const bool added =
      messages_
          .emplace(key, Message{.value = std::move(value),
                                .type = program(rank).slots[static_cast<size_t>(slot)].type})
          .second;
  if (!added) {
    return InternalError("sends tag {:#x} to worker {} twice", instruction.tag, instruction.peer);
  }
  return Status::Ok();
}

Result<bool> VerifyMachine::StepRecv(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 0, 1));
  HEDDLE_RETURN_IF_ERROR(ExpectPeer(rank, instruction.peer));
  const auto found = messages_.find(MessageKey{instruction.peer, rank, instruction.tag});
  if (found == messages_.end()) {
    return false;
  }
  Message& message = found->second;
  if (message.received) {
    return InternalError("receives tag {:#x} of worker {} twice", instruction.tag,
                         instruction.peer);
  }
  message.received = true;
  const auto* const value = std::get_if<TensorValue>(&message.value);
  if (value == nullptr || value->microbatch != instruction.microbatch) {
    return InternalError("tag {:#x} of worker {} is not a tensor of microbatch {}", instruction.tag,
                         instruction.peer, instruction.microbatch);
  }
  const SlotId slot = instruction.outputs.front();
  const std::vector<Slot>& slots = program(rank).slots;
  if (slot >= 0 && static_cast<size_t>(slot) < slots.size() &&
      slots[static_cast<size_t>(slot)].type != message.type) {
    return InternalError("receives tag {:#x} of worker {} as another type than was sent",
                         instruction.tag, instruction.peer);
  }
  const TensorValue received{.tensor = members_.of(rank).ReceivedAs(value->tensor),
                             .microbatch = value->microbatch};
  if (received.tensor < 0) {
    return InternalError("receives {}, which does not come to its group",
                         graph_.tensor(value->tensor).name);
  }
  if (members_.of(rank).PartOf(graph_, value->tensor) !=
      members_.of(instruction.peer).PartOf(graph_, value->tensor)) {
    return InternalError("receives another part of {} than worker {} has",
                         graph_.tensor(value->tensor).name, instruction.peer);
  }
  HEDDLE_RETURN_IF_ERROR(Write(rank, slot, received.tensor, received.microbatch, received));
  return true;
}

Status VerifyMachine::StepFold(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 2, 0));
  HEDDLE_ASSIGN_OR_RETURN(const SumValue* const left, ReadSum(rank, instruction.inputs[0]));
  HEDDLE_ASSIGN_OR_RETURN(const SumValue* const right, ReadSum(rank, instruction.inputs[1]));
  HEDDLE_ASSIGN_OR_RETURN(SumValue sum,
                          AddSums(*left, *right, NumberingOf(left->parameter), exact_));
  worker(rank).slots[static_cast<size_t>(instruction.inputs[0])].value = std::move(sum);
  return Status::Ok();
}

Status VerifyMachine::StepReduce(int rank, const Instruction& instruction) {
  if (instruction.parameter < 0 ||
      static_cast<size_t>(instruction.parameter) >= graph_.parameters.size()) {
    return InternalError("parameter {} does not exist", instruction.parameter);
  }
  const graph::Parameter& parameter = graph_.parameter(instruction.parameter);
  const std::vector<HeldPiece>& pieces =
      members_.pieces()[static_cast<size_t>(instruction.parameter)];
  if (instruction.piece < 0 || static_cast<size_t>(instruction.piece) >= pieces.size()) {
    return InternalError("reduces piece {} of {}, which does not exist", instruction.piece,
                         parameter.name);
  }
  if (instruction.group != pieces[static_cast<size_t>(instruction.piece)].holders ||
      instruction.group.size() < 2) {
    return InternalError("reduces {} over others than its holders", parameter.name);
  }
  if (!std::binary_search(instruction.group.begin(), instruction.group.end(), rank)) {
    return InternalError("reduces {}, which it does not hold", parameter.name);
  }
  const size_t outputs = members_.Keeps(rank, instruction.parameter, instruction.piece) ? 1 : 0;
  if (parameter.gradients.empty() || instruction.outputs.size() != outputs) {
    return InternalError("reduces {} into {} outputs", parameter.name, instruction.outputs.size());
  }
  HEDDLE_RETURN_IF_ERROR(CheckRows(instruction));
  HEDDLE_RETURN_IF_ERROR(JoinReduction(rank, instruction));
  if (outputs == 0) {
    return Status::Ok();
  }
  const SlotId output = instruction.outputs.front();
  HEDDLE_RETURN_IF_ERROR(
      Write(rank, output, parameter.gradients.front(), -1,
            SumValue{.parameter = instruction.parameter, .piece = instruction.piece}));
  worker(rank).slots[static_cast<size_t>(output)].life = SlotState::Life::kPending;
  return Status::Ok();
}

Status VerifyMachine::JoinReduction(int rank, const Instruction& instruction) {
  Reduction& reduction = reductions_[{instruction.parameter, instruction.piece}];
  if (reduction.first == nullptr) {
    reduction.first = &instruction;
    reduction.sum.parameter = instruction.parameter;
    reduction.sum.piece = instruction.piece;
  }
  if (instruction.contributions != reduction.first->contributions ||
      instruction.tag != reduction.first->tag) {
    return InternalError("disagrees with others on the reduction of parameter {}",
                         instruction.parameter);
  }
  HEDDLE_RETURN_IF_ERROR(CheckParts(rank, instruction, reduction));
  const size_t declared = exact_ ? instruction.group.size() : 0;
  if (instruction.contributions.size() != declared) {
    return InternalError("lists contributions of {} workers, expected {}",
                         instruction.contributions.size(), declared);
  }
  std::vector<const SumValue*> sums;
  for (const SlotId slot : instruction.inputs) {
    HEDDLE_ASSIGN_OR_RETURN(sums.emplace_back(), ReadSum(rank, slot));
  }
  SumValue counted;
  if (members_.of(rank).group != nullptr) {
    HEDDLE_RETURN_IF_ERROR(CheckGroupSums(rank, instruction, sums));
    if (!sums.empty()) {
      counted = *sums.front();
      counted.leaves = LeavesOf(rank, instruction.parameter, instruction.piece, /*first=*/true);
      sums = {&counted};
    }
  }
  HEDDLE_RETURN_IF_ERROR(Contribute(instruction, rank, sums, 0, reduction));
  for (const Twin& twin : twins_[static_cast<size_t>(rank)]) {
    HEDDLE_RETURN_IF_ERROR(
        Contribute(instruction, twin.rank, sums, twin.shift, reduction)
            .WithContext("as worker {}", plan_.workers[static_cast<size_t>(twin.rank)]));
  }
  return Status::Ok();
}

Status VerifyMachine::Contribute(const Instruction& instruction,
                                 int rank,
                                 const std::vector<const SumValue*>& sums,
                                 int64_t shift,
                                 Reduction& reduction) {
  if (!reduction.arrived.insert(rank).second) {
    return InternalError("reduces parameter {} twice", instruction.parameter);
  }
  const auto place = static_cast<size_t>(
      std::lower_bound(instruction.group.begin(), instruction.group.end(), rank) -
      instruction.group.begin());
  const bool grouped = StageOfRank(rank)->layout >= 0;
  const size_t expected = exact_    ? instruction.contributions[place].size()
                          : grouped ? sums.size()
                                    : 1;
  if (sums.size() != expected) {
    return InternalError("contributes {} values, expected {}", sums.size(), expected);
  }
  const LeafNumbering numbering = NumberingOf(instruction.parameter);
  for (size_t i = 0; i < expected; ++i) {
    const SumValue& sum = *sums[i];
    if (sum.parameter != instruction.parameter || sum.piece != instruction.piece ||
        (exact_ && !IsWhole(sum, instruction.contributions[place][i], numbering, shift))) {
      return InternalError("contribution {} is not what the plan says", i);
    }
    // The reduction itself orders its additions; here only: nothing twice, nothing missing.
    for (const LeafRange& range : sum.leaves) {
      reduction.sum.leaves.push_back({.first = range.first + shift, .last = range.last + shift});
    }
  }
  return Status::Ok();
}

// What a member adds to a sum that its group shares: all that it is to count, or nothing.
Status VerifyMachine::CheckGroupSums(int rank,
                                     const Instruction& instruction,
                                     const std::vector<const SumValue*>& sums) const {
  const std::vector<LeafRange> leaves =
      LeavesOf(rank, instruction.parameter, instruction.piece, /*first=*/false);
  for (const SumValue* const sum : sums) {
    if (sum->copy) {
      return InternalError("contributes a copy to parameter {} that another member counts",
                           instruction.parameter);
    }
  }
  if (sums.size() != (leaves.empty() ? 0 : 1)) {
    return InternalError("contributes {} values, expected {}", sums.size(), leaves.empty() ? 0 : 1);
  }
  if (!sums.empty() && sums.front()->leaves != leaves) {
    return InternalError("contributes other microbatches or uses of parameter {} than it computes",
                         instruction.parameter);
  }
  return Status::Ok();
}

// What a member of a group counts of a piece; `first`: without what a member before it counts, too.
std::vector<LeafRange> VerifyMachine::LeavesOf(int rank,
                                               ParameterId parameter,
                                               int piece,
                                               bool first) const {
  const VerifyWorker& self = members_.of(rank);
  const Pipeline& pipeline = *PipelineOf(rank);
  std::vector<LeafRange> leaves;
  for (const auto& [tensor, list] : self.group->contributions) {
    for (const Contribution& one : list) {
      if (one.parameter != parameter || one.piece != piece ||
          std::ranges::find(one.members, self.member) == one.members.end() ||
          (first && one.members.front() != self.member)) {
        continue;
      }
      const int64_t begin = one.use * NumberingOf(parameter).stride + pipeline.first_microbatch;
      leaves.push_back({.first = begin, .last = begin + pipeline.microbatches});
    }
  }
  Result<std::vector<LeafRange>> joined = JoinRanges(leaves, parameter);
  return joined.ok() ? *std::move(joined) : leaves;
}

Status VerifyMachine::StepUpdate(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 1, 0));
  HEDDLE_ASSIGN_OR_RETURN(const SumValue* const sum, ReadSum(rank, instruction.inputs.front()));
  if (instruction.parameter < 0 ||
      static_cast<size_t>(instruction.parameter) >= graph_.parameters.size() ||
      !members_.Keeps(rank, instruction.parameter, instruction.piece)) {
    return InternalError("updates piece {} of parameter {}, which it does not hold or keep",
                         instruction.piece, instruction.parameter);
  }
  HEDDLE_RETURN_IF_ERROR(CheckComplete(*sum, instruction.parameter, instruction.piece));
  if (!worker(rank).updated.emplace(instruction.parameter, instruction.piece).second) {
    return InternalError("updates parameter {} twice", instruction.parameter);
  }
  return Status::Ok();
}

Status VerifyMachine::StepFree(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 1, 0));
  const SlotId slot = instruction.inputs.front();
  HEDDLE_RETURN_IF_ERROR(Read(rank, slot).status().WithContext("free"));
  worker(rank).slots[static_cast<size_t>(slot)].life = SlotState::Life::kFreed;
  return Status::Ok();
}

}  // namespace heddle::program
