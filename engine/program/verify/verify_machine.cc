#include "engine/program/verify/verify_machine.h"

#include <algorithm>
#include <bit>

namespace heddle::program {

using graph::ParameterId;
using graph::TensorId;

VerifyMachine::VerifyMachine(const graph::Graph& graph,
                             const Plan& plan,
                             const std::vector<Program>& programs,
                             Followed followed,
                             VerifyWorkers workers)
    : graph_(graph),
      plan_(plan),
      programs_(programs),
      microbatches_(plan.microbatches()),
      exact_(plan.determinism == Determinism::kExact),
      members_(std::move(workers)),
      positions_(plan.workers.size()),
      ranks_(std::move(followed.ranks)),
      twins_(std::move(followed.twins)),
      workers_(programs.size()),
      runs_(graph.nodes.size() * static_cast<size_t>(plan.microbatches()), 0) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    for (size_t s = 0; s < plan.pipelines[p].stages.size(); ++s) {
      for (const int rank : plan.pipelines[p].stages[s].group) {
        positions_[static_cast<size_t>(rank)] = {.pipeline = static_cast<int>(p),
                                                 .stage = static_cast<int>(s)};
      }
    }
  }
  for (const int rank : ranks_) {
    worker(rank).followed = true;
    worker(rank).slots.resize(program(rank).slots.size());
  }
}

const Pipeline* VerifyMachine::PipelineOf(int rank) const {
  const Position& position = positions_[static_cast<size_t>(rank)];
  return position.pipeline < 0 ? nullptr : &plan_.pipelines[static_cast<size_t>(position.pipeline)];
}

const Stage* VerifyMachine::StageOfRank(int rank) const {
  const Pipeline* const pipeline = PipelineOf(rank);
  return pipeline == nullptr
             ? nullptr
             : &pipeline->stages[static_cast<size_t>(positions_[static_cast<size_t>(rank)].stage)];
}

LeafNumbering VerifyMachine::NumberingOf(ParameterId parameter) const {
  return {.microbatches = microbatches_,
          .stride = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(microbatches_))),
          .uses = static_cast<int64_t>(graph_.parameter(parameter).gradients.size())};
}

Status VerifyMachine::Run() {
  for (const int rank : ranks_) {
    HEDDLE_RETURN_IF_ERROR(
        CheckExchanges(rank).WithContext("worker {}", plan_.workers[static_cast<size_t>(rank)]));
  }
  bool moved = true;
  while (moved) {
    moved = false;
    for (const int rank : ranks_) {
      HEDDLE_ASSIGN_OR_RETURN(const bool advanced, Advance(rank));
      moved = moved || advanced;
    }
  }
  for (const int rank : ranks_) {
    if (!worker(rank).at_vote) {
      const Instruction& instruction = program(rank).instructions[worker(rank).next];
      if (instruction.code == Code::kAwait) {
        return InternalError(
            "worker {}, instruction {}: waits for ever for an exchange or a gather that not all of "
            "its group issue",
            plan_.workers[static_cast<size_t>(rank)], worker(rank).next);
      }
      return InternalError("worker {}, instruction {}: waits for ever for tag {:#x} of worker {}",
                           plan_.workers[static_cast<size_t>(rank)], worker(rank).next,
                           instruction.tag, plan_.workers[static_cast<size_t>(instruction.peer)]);
    }
  }
  HEDDLE_RETURN_IF_ERROR(CheckReductions());
  HEDDLE_RETURN_IF_ERROR(Vote());
  for (const int rank : ranks_) {
    worker(rank).at_vote = false;
    ++worker(rank).next;
    HEDDLE_RETURN_IF_ERROR(Advance(rank).status());
  }
  HEDDLE_RETURN_IF_ERROR(CheckCoverage());
  return CheckEnd();
}

Result<bool> VerifyMachine::Advance(int rank) {
  Worker& self = worker(rank);
  const std::vector<Instruction>& instructions = program(rank).instructions;
  bool moved = false;
  while (!self.at_vote && self.next < instructions.size()) {
    const Result<bool> done = Step(rank, instructions[self.next]);
    if (!done.ok()) {
      return done.status().WithContext("worker {}, instruction {}",
                                       plan_.workers[static_cast<size_t>(rank)], self.next);
    }
    if (!*done) {
      return moved;
    }
    if (!self.at_vote) {
      ++self.next;
    }
    moved = true;
  }
  return moved;
}

Result<bool> VerifyMachine::Step(int rank, const Instruction& instruction) {
  Status status;
  switch (instruction.code) {
    case Code::kLoad:
      status = StepLoad(rank, instruction);
      break;
    case Code::kRun:
      status = StepRun(rank, instruction);
      break;
    case Code::kSend:
      status = StepSend(rank, instruction);
      break;
    case Code::kRecv:
      return StepRecv(rank, instruction);
    case Code::kExchange:
      status = StepExchange(rank, instruction);
      break;
    case Code::kGather:
      status = StepGather(rank, instruction);
      break;
    case Code::kAwait:
      return StepAwait(rank, instruction);
    case Code::kFold:
      status = StepFold(rank, instruction);
      break;
    case Code::kReduce:
      status = StepReduce(rank, instruction);
      break;
    case Code::kVote:
      worker(rank).at_vote = true;
      break;
    case Code::kUpdate:
      status = StepUpdate(rank, instruction);
      break;
    case Code::kFree:
      status = StepFree(rank, instruction);
      break;
  }
  if (!status.ok()) {
    return status;
  }
  return true;
}

Status VerifyMachine::Write(
    int rank, SlotId slot, TensorId tensor, int microbatch, SymbolicValue value) {
  const std::vector<Slot>& slots = program(rank).slots;
  if (slot < 0 || static_cast<size_t>(slot) >= slots.size()) {
    return InternalError("writes slot {}, which does not exist", slot);
  }
  const Slot& declared = slots[static_cast<size_t>(slot)];
  SlotState& state = worker(rank).slots[static_cast<size_t>(slot)];
  if (state.life != SlotState::Life::kUnwritten) {
    return InternalError("writes slot {} twice", slot);
  }
  const graph::TensorType& type = graph_of(rank).tensor(tensor).type;
  bool fits = declared.type == type;
  if (const auto* const sum = std::get_if<SumValue>(&value); sum != nullptr && microbatch < 0) {
    const auto piece = static_cast<size_t>(sum->piece);
    Shape shape = members_.pieces()[static_cast<size_t>(sum->parameter)][piece].box.extent;
    if (const graph::Range* const kept = members_.RowsOf(rank, sum->parameter, sum->piece)) {
      shape[0] = kept->end - kept->begin;
    }
    fits = declared.type.dtype == type.dtype && declared.type.shape == shape;
  }
  if (declared.tensor != tensor || declared.microbatch != microbatch || !fits) {
    return InternalError("slot {} does not fit {} of microbatch {}", slot,
                         graph_of(rank).tensor(tensor).name, microbatch);
  }
  state.life = SlotState::Life::kLive;
  state.value = std::move(value);
  return Status::Ok();
}

Result<const SymbolicValue*> VerifyMachine::Read(int rank, SlotId slot) const {
  const std::vector<SlotState>& slots = workers_[static_cast<size_t>(rank)].slots;
  if (slot < 0 || static_cast<size_t>(slot) >= slots.size()) {
    return InternalError("reads slot {}, which does not exist", slot);
  }
  const SlotState& state = slots[static_cast<size_t>(slot)];
  switch (state.life) {
    case SlotState::Life::kUnwritten:
      return InternalError("reads slot {} before it is written", slot);
    case SlotState::Life::kPending:
      return InternalError("reads slot {} before its reduction has ended", slot);
    case SlotState::Life::kInFlight:
      return InternalError("reads slot {} before its exchange is awaited", slot);
    case SlotState::Life::kFreed:
      return InternalError("reads slot {} after it was freed", slot);
    case SlotState::Life::kLive:
      break;
  }
  return &state.value;
}

Result<const SumValue*> VerifyMachine::ReadSum(int rank, SlotId slot) const {
  HEDDLE_ASSIGN_OR_RETURN(const SymbolicValue* const value, Read(rank, slot));
  const auto* const sum = std::get_if<SumValue>(value);
  if (sum == nullptr) {
    return InternalError("slot {} is not a gradient", slot);
  }
  return sum;
}

Status VerifyMachine::ReadTensor(int rank, SlotId slot, TensorId tensor, int microbatch) const {
  HEDDLE_ASSIGN_OR_RETURN(const SymbolicValue* const value, Read(rank, slot));
  const auto* const held = std::get_if<TensorValue>(value);
  if (held == nullptr || *held != TensorValue{.tensor = tensor, .microbatch = microbatch}) {
    return InternalError("slot {} does not hold {} of microbatch {}", slot,
                         graph_of(rank).tensor(tensor).name, microbatch);
  }
  return Status::Ok();
}

Status VerifyMachine::ExpectShape(const Instruction& instruction,
                                  size_t inputs,
                                  size_t outputs) const {
  if (instruction.inputs.size() != inputs || instruction.outputs.size() != outputs) {
    return InternalError("has {} inputs and {} outputs, expected {} and {}",
                         instruction.inputs.size(), instruction.outputs.size(), inputs, outputs);
  }
  return Status::Ok();
}

Status VerifyMachine::ExpectOwnMicrobatch(int rank, int microbatch) const {
  const Pipeline* const pipeline = PipelineOf(rank);
  if (pipeline == nullptr || microbatch < pipeline->first_microbatch ||
      microbatch >= pipeline->first_microbatch + pipeline->microbatches) {
    return InternalError("microbatch {} belongs to another pipeline", microbatch);
  }
  return Status::Ok();
}

Status VerifyMachine::ExpectPeer(int rank, int peer) const {
  const std::vector<int>& peers = program(rank).peers;
  if (peer == rank || !std::binary_search(peers.begin(), peers.end(), peer)) {
    return InternalError("worker {} is not among the program's peers", peer);
  }
  return Status::Ok();
}

}  // namespace heddle::program
