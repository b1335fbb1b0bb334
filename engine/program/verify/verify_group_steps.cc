// The instructions of members of groups that VerifyMachine runs.
#include <algorithm>

#include "engine/program/verify/verify_machine.h"
#include "engine/program/verify/verify_stage_graph.h"

namespace heddle::program {

using graph::Exchange;
using graph::TensorId;

// All members have the same exchanges, and each makes what it says.
Status VerifyMachine::CheckExchanges(int rank) {
  const VerifyWorker& self = members_.of(rank);
  const std::vector<Exchange>& exchanges = program(rank).exchanges;
  if (self.group == nullptr) {
    return exchanges.empty() ? Status::Ok() : InternalError("it is in no group, and has exchanges");
  }
  if (exchanges != program(self.exchanges->group().front()).exchanges) {
    return InternalError("it has other exchanges than the first member of its group");
  }
  for (size_t e = 0; e < exchanges.size(); ++e) {
    HEDDLE_RETURN_IF_ERROR(
        VerifyExchange(self.group->sharded, exchanges[e]).WithContext("exchange {}", e));
  }
  return Status::Ok();
}

Status VerifyMachine::CountGroupRun(int rank, RunKey run, bool again) {
  int& runs = worker(rank).runs[run];
  if (runs >= (again ? 2 : 1)) {
    return InternalError("runs {} {} on microbatch {} once too often",
                         std::get<0>(run) ? "exchange" : "node", std::get<1>(run),
                         std::get<2>(run));
  }
  ++runs;
  return Status::Ok();
}

Status VerifyMachine::StepExchange(int rank, const Instruction& instruction) {
  const VerifyWorker& self = members_.of(rank);
  const std::vector<Exchange>& exchanges = program(rank).exchanges;
  if (instruction.exchange < 0 || static_cast<size_t>(instruction.exchange) >= exchanges.size()) {
    return InternalError("exchange {} does not exist", instruction.exchange);
  }
  const Exchange& exchange = exchanges[static_cast<size_t>(instruction.exchange)];
  HEDDLE_RETURN_IF_ERROR(ExpectOwnMicrobatch(rank, instruction.microbatch));
  if (instruction.group != self.exchanges->group()) {
    return InternalError("makes exchange {} with others than its group", instruction.exchange);
  }
  const RunKey key{true, instruction.exchange, instruction.microbatch};
  const bool may_run_again =
      StageOfRank(rank)->recompute || exchange.form == graph::ExchangeForm::kGather;
  HEDDLE_RETURN_IF_ERROR(CountGroupRun(rank, key, may_run_again));
  const bool again = worker(rank).runs.at(key) > 1;
  if (instruction.tag != ExchangeTag(exchange.to, instruction.microbatch, again)) {
    return InternalError("makes exchange {} under tag {:#x}, which is another one's",
                         instruction.exchange, instruction.tag);
  }
  const auto member = static_cast<size_t>(self.member);
  HEDDLE_ASSIGN_OR_RETURN(const size_t number,
                          self.exchanges->Add(member, {.exchange = instruction.exchange,
                                                       .microbatch = instruction.microbatch,
                                                       .again = again}));
  const size_t inputs = exchange.sent[member].empty() ? 0 : 1;
  const size_t outputs = exchange.received[member].empty() ? 0 : 1;
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, inputs, outputs));
  const graph::Tensor& source = graph_of(rank).tensor(exchange.from);
  if (inputs > 0 && source.kind == graph::TensorKind::kParameter) {
    if (instruction.inputs.front() != -1) {
      return InternalError("does not exchange parameter {} from its own state", source.name);
    }
    HEDDLE_RETURN_IF_ERROR(ReadParameter(rank, source.parameter));
  } else if (inputs > 0) {
    HEDDLE_RETURN_IF_ERROR(
        ReadTensor(rank, instruction.inputs.front(), exchange.from, instruction.microbatch));
  }
  if (outputs == 0) {
    return Status::Ok();
  }
  HEDDLE_RETURN_IF_ERROR(WriteOutput(rank, instruction, 0, exchange.to));
  if (exchange.form != graph::ExchangeForm::kSlice && exchange.form != graph::ExchangeForm::kFill) {
    SlotState& state = worker(rank).slots[static_cast<size_t>(instruction.outputs.front())];
    state.life = SlotState::Life::kInFlight;
    state.exchange = number;
  }
  return Status::Ok();
}

Result<bool> VerifyMachine::StepAwait(int rank, const Instruction& instruction) {
  if (instruction.parameter >= 0) {
    return AwaitGathers(rank, instruction);
  }
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 1, 0));
  const SlotId slot = instruction.inputs.front();
  std::vector<SlotState>& slots = worker(rank).slots;
  if (slot < 0 || static_cast<size_t>(slot) >= slots.size() ||
      slots[static_cast<size_t>(slot)].life != SlotState::Life::kInFlight) {
    return InternalError("awaits slot {}, which is not in flight", slot);
  }
  SlotState& state = slots[static_cast<size_t>(slot)];
  if (!members_.of(rank).exchanges->Complete(state.exchange)) {
    return false;
  }
  state.life = SlotState::Life::kLive;
  return true;
}

// Every member runs its share of each node of the stage, and all exchanges.
Status VerifyMachine::CheckGroupCoverage(const Pipeline& pipeline, const Stage& stage) const {
  const VerifyWorker& first = members_.of(stage.group.front());
  HEDDLE_RETURN_IF_ERROR(first.exchanges->CheckEnd(program(stage.group.front()).exchanges.size()));
  for (const int rank : stage.group) {
    const auto& runs = workers_[static_cast<size_t>(rank)].runs;
    for (const graph::Step& step : first.group->sharded.order) {
      const graph::NodeId node = step.node;
      if (node < 0 || graph_of(rank).node(node).segment < stage.first_segment ||
          graph_of(rank).node(node).segment >= stage.last_segment ||
          !first.group->sharded.divisions[static_cast<size_t>(node)].Runs(
              members_.of(rank).member)) {
        continue;
      }
      for (int m = 0; m < pipeline.microbatches; ++m) {
        const int microbatch = pipeline.first_microbatch + m;
        if (runs.count({false, node, microbatch}) == 0) {
          return InternalError("worker {}: does not run its share of node {} on microbatch {}",
                               plan_.workers[static_cast<size_t>(rank)], node, microbatch);
        }
      }
    }
  }
  return Status::Ok();
}

}  // namespace heddle::program
