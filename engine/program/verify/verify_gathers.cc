// The instructions of plans that divide the optimizer that VerifyMachine runs.
#include <algorithm>

#include "engine/program/verify/verify_machine.h"

namespace heddle::program {

using graph::ParameterId;

// A collective over a divided piece names how many rows each member keeps; another one names none.
Status VerifyMachine::CheckRows(const Instruction& instruction) const {
  std::vector<int64_t> rows;
  for (const graph::Range& kept : members_.rows(instruction.parameter, instruction.piece)) {
    rows.push_back(kept.end - kept.begin);
  }
  return rows == instruction.rows
             ? Status::Ok()
             : InternalError(
                   "divides piece {} of parameter {} into other rows than its holders keep",
                   instruction.piece, instruction.parameter);
}

// The sums of one collective follow each other, and are the same for all who take part.
Status VerifyMachine::CheckParts(int rank,
                                 const Instruction& instruction,
                                 Reduction& reduction) const {
  const auto at = static_cast<ptrdiff_t>(workers_[static_cast<size_t>(rank)].next);
  const std::vector<Instruction>& all = program(rank).instructions;
  if (instruction.part < 0 || instruction.part >= instruction.parts || instruction.part > at ||
      instruction.parts - instruction.part > std::ssize(all) - at) {
    return InternalError("makes part {} of {} of a collective", instruction.part,
                         instruction.parts);
  }
  const Instruction& lead = all[static_cast<size_t>(at - instruction.part)];
  if (lead.code != Code::kReduce || lead.part != 0 || lead.parts != instruction.parts ||
      lead.group != instruction.group || lead.contributions != instruction.contributions ||
      (instruction.parts > 1 && !instruction.rows.empty())) {
    return InternalError("reduces parameter {} together with others that are reduced otherwise",
                         instruction.parameter);
  }
  for (int part = instruction.part; part < instruction.parts; ++part) {
    const Instruction& next = all[static_cast<size_t>(at + part - instruction.part)];
    if (next.code != Code::kReduce || next.part != part || next.parts != instruction.parts) {
      return InternalError("reduces parameter {} together with others that do not follow it",
                           instruction.parameter);
    }
  }
  const PieceName name(lead.parameter, lead.piece);
  if (reduction.arrived.empty()) {
    reduction.lead = name;
  }
  if (reduction.lead != name || reduction.first->part != instruction.part ||
      reduction.first->parts != instruction.parts) {
    return InternalError("reduces parameter {} together with other parameters than others do",
                         instruction.parameter);
  }
  return Status::Ok();
}

Status VerifyMachine::StepGather(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 0, 0));
  const ParameterId parameter = instruction.parameter;
  if (parameter < 0 || static_cast<size_t>(parameter) >= graph_.parameters.size() ||
      members_.RowsOf(rank, parameter, instruction.piece) == nullptr) {
    return InternalError("gathers piece {} of parameter {}, of which it does not keep some rows",
                         instruction.piece, parameter);
  }
  const HeldPiece& piece =
      members_.pieces()[static_cast<size_t>(parameter)][static_cast<size_t>(instruction.piece)];
  if (instruction.group != piece.holders ||
      instruction.tag != GatherTag(parameter, instruction.piece)) {
    return InternalError(
        "gathers piece {} of parameter {} from others than its holders, or under "
        "another one's tag",
        instruction.piece, parameter);
  }
  HEDDLE_RETURN_IF_ERROR(CheckRows(instruction));
  if (!gathers_[{parameter, instruction.piece}].insert(rank).second) {
    return InternalError("gathers piece {} of parameter {} twice", instruction.piece, parameter);
  }
  return Status::Ok();
}

// Ends once all holders of what this worker has of the parameter have issued their gathers.
Result<bool> VerifyMachine::AwaitGathers(int rank, const Instruction& instruction) {
  HEDDLE_RETURN_IF_ERROR(ExpectShape(instruction, 0, 0));
  const ParameterId parameter = instruction.parameter;
  const size_t pieces = static_cast<size_t>(parameter) < graph_.parameters.size()
                            ? members_.pieces()[static_cast<size_t>(parameter)].size()
                            : 0;
  bool any = false;
  for (int i = 0; i < static_cast<int>(pieces); ++i) {
    if (members_.RowsOf(rank, parameter, i) == nullptr) {
      continue;
    }
    any = true;
    const std::set<int>& issued = gathers_[{parameter, i}];
    if (issued.count(rank) == 0) {
      return InternalError("awaits parameter {}, of which it has not gathered piece {}", parameter,
                           i);
    }
    if (issued.size() <
        members_.pieces()[static_cast<size_t>(parameter)][static_cast<size_t>(i)].holders.size()) {
      return false;
    }
  }
  if (!any || !worker(rank).gathered.insert(parameter).second) {
    return InternalError("awaits parameter {}, which it does not gather, or twice", parameter);
  }
  return true;
}

// A compute copy of which others keep rows is as of the step before, until it is gathered.
Status VerifyMachine::ReadParameter(int rank, ParameterId parameter) const {
  const size_t pieces = members_.pieces()[static_cast<size_t>(parameter)].size();
  for (int i = 0; i < static_cast<int>(pieces); ++i) {
    if (members_.RowsOf(rank, parameter, i) != nullptr &&
        workers_[static_cast<size_t>(rank)].gathered.count(parameter) == 0) {
      return InternalError("reads the compute copy of {} before it is gathered",
                           graph_.parameter(parameter).name);
    }
  }
  return Status::Ok();
}

}  // namespace heddle::program
