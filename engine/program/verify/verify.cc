#include "engine/program/verify/verify.h"

#include <algorithm>

#include "engine/program/slices.h"
#include "engine/program/verify/verify_classes.h"
#include "engine/program/verify/verify_machine.h"

namespace heddle::program {

using graph::ParameterId;

namespace {

Status VerifyHeader(const Plan& plan,
                    const Program& program,
                    size_t rank,
                    const VerifyWorkers& workers,
                    bool grouped) {
  if (program.rank != static_cast<int>(rank) || program.generation != plan.generation ||
      program.workers != static_cast<int>(plan.workers.size()) ||
      program.determinism != plan.determinism) {
    return InternalError("the program is of another rank, generation or plan");
  }
  std::vector<ParameterId> parameters;
  std::vector<Piece> pieces;
  const std::vector<std::vector<HeldPiece>>& all = workers.pieces();
  for (size_t p = 0; p < all.size(); ++p) {
    const auto id = static_cast<ParameterId>(p);
    if (!std::ranges::binary_search(workers.holders()[p], static_cast<int>(rank))) {
      continue;
    }
    parameters.push_back(id);
    for (size_t i = 0; i < all[p].size() && (grouped || plan.divides_optimizer); ++i) {
      const int index = static_cast<int>(i);
      if (workers.Holds(static_cast<int>(rank), id, index)) {
        Piece piece{.parameter = id, .index = index, .box = all[p][i].box};
        if (const graph::Range* const rows = workers.RowsOf(static_cast<int>(rank), id, index)) {
          piece.kept = RowsOf(piece.box, *rows);
        }
        pieces.push_back(std::move(piece));
      }
    }
  }
  if (program.parameters != parameters) {
    return InternalError("the program lists other parameters than the worker holds");
  }
  if (program.pieces != pieces) {
    return InternalError("the program lists other pieces of parameters than the worker holds");
  }
  return Status::Ok();
}

// Before the vote nothing is applied, after it only updates and frees.
Status VerifyVotePosition(const Program& program) {
  if (program.vote_index >= program.instructions.size() ||
      program.instructions[program.vote_index].code != Code::kVote) {
    return InternalError("instruction {} is not the vote", program.vote_index);
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Code code = program.instructions[i].code;
    const bool applies = code == Code::kUpdate;
    const bool after = i > program.vote_index;
    if ((code == Code::kVote && i != program.vote_index) || (applies && !after) ||
        (after && !applies && code != Code::kFree)) {
      return InternalError("instruction {} is on the wrong side of the vote", i);
    }
  }
  return Status::Ok();
}

// The peers are exactly those that instructions name, and the relation is symmetric.
Status VerifyPeers(const std::vector<Program>& programs, size_t rank) {
  std::set<int> used;
  for (const Instruction& instruction : programs[rank].instructions) {
    if (instruction.peer >= 0) {
      used.insert(instruction.peer);
    }
    used.insert(instruction.group.begin(), instruction.group.end());
  }
  used.erase(static_cast<int>(rank));
  if (!std::equal(used.begin(), used.end(), programs[rank].peers.begin(),
                  programs[rank].peers.end())) {
    return InternalError("the program's peers are not those that its instructions name");
  }
  for (const int peer : used) {
    if (peer < 0 || static_cast<size_t>(peer) >= programs.size()) {
      return InternalError("worker {} does not exist", peer);
    }
    const std::vector<int>& back = programs[static_cast<size_t>(peer)].peers;
    if (std::find(back.begin(), back.end(), static_cast<int>(rank)) == back.end()) {
      return InternalError("worker {} does not list it as a peer", peer);
    }
  }
  return Status::Ok();
}

// Every worker issues its gathers and reductions in program order; one order must fit all of them,
// else two workers that take them one by one wait for each other.
Status VerifyReduceOrder(const std::vector<Program>& programs, const std::vector<int>& ranks) {
  using Name = std::tuple<ParameterId, int, Code>;
  std::map<Name, std::set<Name>> after;
  std::map<Name, int> before;
  for (const int rank : ranks) {
    Name last(-1, 0, Code::kReduce);
    for (const Instruction& instruction : programs[static_cast<size_t>(rank)].instructions) {
      if (instruction.code != Code::kReduce && instruction.code != Code::kGather) {
        continue;
      }
      const Name name(instruction.parameter, instruction.piece, instruction.code);
      before.emplace(name, 0);
      if (std::get<0>(last) >= 0 && last != name && after[last].insert(name).second) {
        ++before[name];
      }
      last = name;
    }
  }
  std::vector<Name> ready;
  for (const auto& [name, count] : before) {
    if (count == 0) {
      ready.push_back(name);
    }
  }
  size_t ordered = 0;
  while (!ready.empty()) {
    const Name name = ready.back();
    ready.pop_back();
    ++ordered;
    for (const Name& next : after[name]) {
      if (--before[next] == 0) {
        ready.push_back(next);
      }
    }
  }
  if (ordered != before.size()) {
    return InternalError("workers issue reductions or gathers in different orders");
  }
  return Status::Ok();
}

}  // namespace

Status VerifyMachine::CheckReductions() {
  for (auto& [key, reduction] : reductions_) {
    const ParameterId parameter = key.first;
    const std::vector<int>& holders =
        members_.pieces()[static_cast<size_t>(parameter)][static_cast<size_t>(key.second)].holders;
    const std::string& name = graph_.parameter(parameter).name;
    HEDDLE_ASSIGN_OR_RETURN(reduction.sum.leaves,
                            JoinRanges(std::move(reduction.sum.leaves), parameter));
    for (const int holder : holders) {
      if (reduction.arrived.count(holder) == 0) {
        return InternalError("worker {}: takes no part in the reduction of {}",
                             plan_.workers[static_cast<size_t>(holder)], name);
      }
    }
    if (reduction.sum.count() != NumberingOf(parameter).total()) {
      return InternalError("the reduction of {} has {} contributions of {}", name,
                           reduction.sum.count(), NumberingOf(parameter).total());
    }
  }
  return Status::Ok();
}

Status VerifyMachine::CheckComplete(const SumValue& sum, ParameterId parameter, int piece) const {
  if (sum.copy) {
    return InternalError("applies a copy of the gradient of {} that another member counts",
                         graph_.parameter(parameter).name);
  }
  if (sum.parameter == parameter && sum.piece != piece) {
    return InternalError("the gradient of piece {} of {} is used for piece {}", sum.piece,
                         graph_.parameter(parameter).name, piece);
  }
  if (sum.parameter != parameter) {
    return InternalError("the gradient of parameter {} is used for {}", sum.parameter, parameter);
  }
  const int64_t total = NumberingOf(parameter).total();
  if (sum.count() != total) {
    return InternalError("the gradient of {} has {} contributions of {}",
                         graph_.parameter(parameter).name, sum.count(), total);
  }
  return Status::Ok();
}

Status VerifyMachine::Vote() {
  std::set<Report> norms;
  std::vector<bool> losses(static_cast<size_t>(microbatches_), false);
  for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
    for (SlotState& slot : worker(rank).slots) {
      if (slot.life == SlotState::Life::kPending) {
        slot.life = SlotState::Life::kLive;
        auto& sum = std::get<SumValue>(slot.value);
        sum = reductions_.at({sum.parameter, sum.piece}).sum;
      }
    }
    HEDDLE_RETURN_IF_ERROR(
        VoteOf(rank, norms, losses)
            .WithContext("worker {}, vote", plan_.workers[static_cast<size_t>(rank)]));
  }
  for (size_t microbatch = 0; microbatch < losses.size(); ++microbatch) {
    if (!losses[microbatch]) {
      return InternalError("nobody reports the loss of microbatch {}", microbatch);
    }
  }
  for (size_t p = 0; p < graph_.parameters.size(); ++p) {
    const size_t pieces = graph_.parameters[p].gradients.empty() ? 0 : members_.pieces()[p].size();
    for (size_t i = 0; i < pieces; ++i) {
      const auto id = static_cast<ParameterId>(p);
      const int index = static_cast<int>(i);
      for (const int holder : members_.pieces()[p][i].holders) {
        if (members_.Reports(holder, id, index) && norms.count({id, index, holder}) == 0) {
          return InternalError("nobody reports the norm of {}", graph_.parameters[p].name);
        }
      }
    }
  }
  return Status::Ok();
}

Status VerifyMachine::VoteOf(int rank, std::set<Report>& norms, std::vector<bool>& losses) {
  const VoteShare& share = program(rank).vote;
  for (const VoteShare::Norm& norm : share.norms) {
    const auto& all = members_.pieces();
    if (norm.parameter < 0 || static_cast<size_t>(norm.parameter) >= all.size() || norm.piece < 0 ||
        static_cast<size_t>(norm.piece) >= all[static_cast<size_t>(norm.parameter)].size() ||
        members_.holders()[static_cast<size_t>(norm.parameter)].empty()) {
      return InternalError("reports the norm of parameter {}, which nobody holds", norm.parameter);
    }
    if (worker(rank).followed) {
      HEDDLE_ASSIGN_OR_RETURN(const SumValue* const sum, ReadSum(rank, norm.gradient));
      HEDDLE_RETURN_IF_ERROR(CheckComplete(*sum, norm.parameter, norm.piece));
    }
    if (!members_.Reports(rank, norm.parameter, norm.piece)) {
      return InternalError("reports the norm of parameter {} without owning it", norm.parameter);
    }
    if (!norms.emplace(norm.parameter, norm.piece, rank).second) {
      return InternalError("the norm of parameter {} is reported twice", norm.parameter);
    }
  }
  for (const VoteShare::Loss& loss : share.losses) {
    HEDDLE_RETURN_IF_ERROR(ExpectOwnMicrobatch(rank, loss.microbatch));
    if (worker(rank).followed) {
      HEDDLE_RETURN_IF_ERROR(
          ReadTensor(rank, loss.slot, members_.of(rank).Loss(graph_), loss.microbatch));
    }
    if (losses[static_cast<size_t>(loss.microbatch)]) {
      return InternalError("the loss of microbatch {} is reported twice", loss.microbatch);
    }
    losses[static_cast<size_t>(loss.microbatch)] = true;
  }
  return Status::Ok();
}

Status VerifyMachine::CheckCoverage() const {
  for (const Pipeline& pipeline : plan_.pipelines) {
    if (!workers_[static_cast<size_t>(pipeline.stages.front().group.front())].followed) {
      continue;
    }
    for (const Stage& stage : pipeline.stages) {
      if (stage.layout >= 0) {
        HEDDLE_RETURN_IF_ERROR(CheckGroupCoverage(pipeline, stage));
      }
    }
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      const int stage = StageOf(pipeline, graph_.nodes[node].segment);
      if (pipeline.stages[static_cast<size_t>(stage)].layout >= 0) {
        continue;
      }
      for (int m = 0; m < pipeline.microbatches; ++m) {
        const auto microbatch = static_cast<size_t>(pipeline.first_microbatch + m);
        if (runs_[node * static_cast<size_t>(microbatches_) + microbatch] == 0) {
          return InternalError("nobody runs node {} on microbatch {}", node, microbatch);
        }
      }
    }
  }
  return Status::Ok();
}

Status VerifyMachine::CheckEnd() const {
  for (const auto& [key, message] : messages_) {
    if (!message.received) {
      return InternalError("worker {}: worker {} never receives tag {:#x}",
                           plan_.workers[static_cast<size_t>(std::get<0>(key))],
                           plan_.workers[static_cast<size_t>(std::get<1>(key))], std::get<2>(key));
    }
  }
  for (const int followed : ranks_) {
    const auto rank = static_cast<size_t>(followed);
    const Worker& self = workers_[rank];
    for (size_t slot = 0; slot < self.slots.size(); ++slot) {
      if (self.slots[slot].life != SlotState::Life::kFreed) {
        return InternalError(
            "worker {}: slot {} is never {}", plan_.workers[rank], slot,
            self.slots[slot].life == SlotState::Life::kUnwritten ? "written" : "freed");
      }
    }
    for (const ParameterId parameter : programs_[rank].parameters) {
      const size_t pieces = graph_.parameter(parameter).gradients.empty()
                                ? 0
                                : members_.pieces()[static_cast<size_t>(parameter)].size();
      for (int i = 0; i < static_cast<int>(pieces); ++i) {
        if (members_.RowsOf(followed, parameter, i) != nullptr &&
            self.gathered.count(parameter) == 0) {
          return InternalError("worker {}: never awaits the gathers of {}", plan_.workers[rank],
                               graph_.parameter(parameter).name);
        }
        if (members_.Keeps(followed, parameter, i) && self.updated.count({parameter, i}) == 0) {
          return InternalError("worker {}: never updates {}", plan_.workers[rank],
                               graph_.parameter(parameter).name);
        }
      }
    }
  }
  return Status::Ok();
}

Status Verify(const graph::Graph& graph,
              const Plan& plan,
              const std::vector<Program>& programs,
              VerifyScope scope) {
  HEDDLE_RETURN_IF_ERROR(ValidatePlan(plan, graph));
  HEDDLE_RETURN_IF_ERROR(CheckPieces(graph, plan));
  if (programs.size() != plan.workers.size()) {
    return InternalError("{} programs for {} workers", programs.size(), plan.workers.size());
  }
  // What a worker keeps depends on its place among the holders: none stands for others.
  Followed followed = FollowedOf(plan, plan.divides_optimizer ? VerifyScope::kEveryWorker : scope);
  HEDDLE_ASSIGN_OR_RETURN(VerifyWorkers workers,
                          VerifyWorkers::Create(graph, plan, followed.ranks));
  std::vector<bool> grouped(programs.size(), false);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      for (const int rank : stage.group) {
        grouped[static_cast<size_t>(rank)] = stage.layout >= 0;
      }
    }
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    HEDDLE_RETURN_IF_ERROR(VerifyHeader(plan, programs[rank], rank, workers, grouped[rank])
                               .WithContext("worker {}", plan.workers[rank]));
  }
  for (const int rank : followed.ranks) {
    const auto named = [&](const Status& status) {
      return status.WithContext("worker {}", plan.workers[static_cast<size_t>(rank)]);
    };
    HEDDLE_RETURN_IF_ERROR(named(VerifyVotePosition(programs[static_cast<size_t>(rank)])));
    HEDDLE_RETURN_IF_ERROR(named(VerifyPeers(programs, static_cast<size_t>(rank))));
  }
  HEDDLE_RETURN_IF_ERROR(VerifyReduceOrder(programs, followed.ranks));
  return VerifyMachine(graph, plan, programs, std::move(followed), std::move(workers)).Run();
}

}  // namespace heddle::program
