#include "planner/predictor/simulator.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "comm/cost/cost.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"
#include "engine/program/stage_graph.h"
#include "planner/predictor/exchange_cost.h"
#include "planner/predictor/node_prices.h"

namespace heddle::planner {
namespace {

using program::Code;
using program::Instruction;
using program::Program;

/// Turns Programs into a Schedule.
class Translator {
 public:
  Translator(const graph::Graph& graph,
             const std::vector<Program>& programs,
             const ClusterProfile& cluster,
             const SimulationOptions& options)
      : graph_(graph),
        programs_(programs),
        cluster_(cluster),
        timeline_(options.timeline),
        prices_(options.graphs.empty() ? std::vector<const graph::Graph*>(programs.size(), &graph)
                                       : options.graphs,
                cluster.workers) {}

  Result<Schedule> Run() {
    schedule_.workers.resize(programs_.size());
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      pending_ = 0;
      for (size_t i = 0; i < programs_[rank].instructions.size(); ++i) {
        HEDDLE_RETURN_IF_ERROR(Translate(rank, static_cast<int>(i)));
      }
      Flush(rank);
      const program::VoteShare& vote = programs_[rank].vote;
      // A norm or a loss travels as a number of its tensor or microbatch and a double.
      vote_bytes_ = std::max(
          vote_bytes_, 64 + 16 * static_cast<int64_t>(vote.norms.size() + vote.losses.size()));
    }
    schedule_.messages = static_cast<int>(messages_.size());
    schedule_.vote_seconds =
        programs_.size() > 1 ? comm::AllGatherBytesSeconds(cluster_.links, vote_bytes_) : 0;
    return std::move(schedule_);
  }

 private:
  const program::WorkerProfile& Profile(size_t rank) const { return cluster_.workers[rank]; }

  /// 0 for a part of a parameter, which is in no slot.
  int64_t SlotBytes(size_t rank, program::SlotId slot) const {
    return slot < 0 ? 0 : programs_[rank].slots[static_cast<size_t>(slot)].type.bytes();
  }

  int64_t ParameterBytes(graph::ParameterId parameter) const {
    return ElementCount(graph_.parameter(parameter).shape) * SizeOf(graph_.master_dtype());
  }

  void Add(size_t rank, Action action, int index) {
    action.seconds += pending_;
    pending_ = 0;
    action.instruction = index;
    schedule_.workers[rank].push_back(action);
  }

  /// Merges consecutive computing into one action, unless a timeline is requested.
  void Compute(size_t rank, double seconds, int index) {
    pending_ += seconds;
    if (timeline_) {
      Add(rank, {.kind = Action::Kind::kCompute}, index);
    }
  }

  void Flush(size_t rank) {
    if (pending_ > 0) {
      Add(rank, {.kind = Action::Kind::kCompute}, -1);
    }
  }

  int Message(int from, int to, uint64_t tag) {
    return messages_.emplace(std::tuple(from, to, tag), static_cast<int>(messages_.size()))
        .first->second;
  }

  Status Translate(size_t rank, int index) {
    const Instruction& instruction = programs_[rank].instructions[static_cast<size_t>(index)];
    const double fixed = Profile(rank).instruction_seconds;
    switch (instruction.code) {
      case Code::kLoad:
        Compute(
            rank,
            fixed + Profile(rank).ByteSeconds("copy", SlotBytes(rank, instruction.outputs.at(0))),
            index);
        return Status::Ok();
      case Code::kRun:
        Compute(rank, fixed + prices_.Seconds(rank, instruction.node), index);
        return Status::Ok();
      case Code::kFold:
        Compute(
            rank,
            fixed + Profile(rank).ByteSeconds("fold", SlotBytes(rank, instruction.inputs.at(0))),
            index);
        return Status::Ok();
      case Code::kUpdate:
        Compute(
            rank,
            fixed + Profile(rank).ByteSeconds("update", SlotBytes(rank, instruction.inputs.at(0))),
            index);
        return Status::Ok();
      case Code::kFree:
        return Status::Ok();
      case Code::kExchange:
        return Exchange(rank, instruction, index);
      case Code::kAwait:
        return Await(rank, instruction, index);
      case Code::kSend:
      case Code::kRecv:
        return Transfer(rank, instruction, index);
      case Code::kReduce:
        return Reduce(rank, instruction, index);
      case Code::kGather:
        Gather(rank, instruction, index);
        return Status::Ok();
      case Code::kVote:
        Vote(rank, index);
        return Status::Ok();
    }
    return Status::Ok();
  }

  Status Transfer(size_t rank, const Instruction& instruction, int index) {
    const int self = static_cast<int>(rank);
    if (instruction.peer < 0 || instruction.peer >= static_cast<int>(programs_.size())) {
      return InternalError("worker {} instruction {}: no worker {}", rank, index, instruction.peer);
    }
    // The computing before is an action of its own: the message leaves when it is done.
    Flush(rank);
    const bool send = instruction.code == Code::kSend;
    Action action{.kind = send ? Action::Kind::kSend : Action::Kind::kRecv,
                  .seconds = Profile(rank).instruction_seconds,
                  .peer = instruction.peer};
    action.message = send ? Message(self, instruction.peer, instruction.tag)
                          : Message(instruction.peer, self, instruction.tag);
    action.bytes = send ? SlotBytes(rank, instruction.inputs.at(0)) : 0;
    Add(rank, action, index);
    return Status::Ok();
  }

  Status Reduce(size_t rank, const Instruction& instruction, int index) {
    if (instruction.group.size() < 2) {
      Compute(rank, Profile(rank).instruction_seconds, index);
      return Status::Ok();
    }
    if (instruction.part + 1 < instruction.parts) {  // The last of a collective's sums begins it.
      Compute(rank, Profile(rank).instruction_seconds, index);
      return Status::Ok();
    }
    if (instruction.part > index) {
      return InternalError("worker {} instruction {}: no sum before it", rank, index);
    }
    const int collective = CollectiveOf(Lane::kReductions, instruction);
    if (Collective& work = At(collective); work.seconds == 0) {
      work.seconds = ReductionSeconds(rank, instruction, index);
    }
    Collect(rank, index, collective);
    return Status::Ok();
  }

  Collective& At(int collective) { return schedule_.collectives[static_cast<size_t>(collective)]; }

  /// The number of the instruction's collective, which its members share.
  int CollectiveOf(Lane lane, const Instruction& instruction) {
    const auto found =
        collectives_.emplace(std::tuple(instruction.tag, instruction.parameter, instruction.group),
                             static_cast<int>(schedule_.collectives.size()));
    if (found.second) {
      schedule_.collectives.push_back({.lane = lane, .members = instruction.group, .seconds = 0});
    }
    return found.first->second;
  }

  void Collect(size_t rank, int index, int collective) {
    Flush(rank);
    Add(rank,
        {.kind = Action::Kind::kCollect,
         .seconds = Profile(rank).instruction_seconds,
         .collective = collective},
        index);
  }

  Status Exchange(size_t rank, const Instruction& instruction, int index) {
    const std::vector<graph::Exchange>& exchanges = programs_[rank].exchanges;
    if (instruction.exchange < 0 || instruction.exchange >= static_cast<int>(exchanges.size())) {
      return InternalError("worker {} instruction {}: no exchange {}", rank, index,
                           instruction.exchange);
    }
    const graph::Exchange& exchange = exchanges[static_cast<size_t>(instruction.exchange)];
    const int64_t sent = instruction.inputs.empty() ? 0 : SlotBytes(rank, instruction.inputs[0]);
    const int64_t got = instruction.outputs.empty() ? 0 : SlotBytes(rank, instruction.outputs[0]);
    if (!Communicates(exchange.form)) {
      Compute(rank, Profile(rank).instruction_seconds + Profile(rank).ByteSeconds("copy", got),
              index);
      return Status::Ok();
    }
    const int collective = CollectiveOf(Lane::kExchanges, instruction);
    if (Collective& work = At(collective); work.seconds == 0) {
      work.seconds = ExchangeSeconds(cluster_.links, instruction.group, exchange, sent, got);
    }
    Collect(rank, index, collective);
    if (!instruction.outputs.empty()) {
      awaited_[{rank, instruction.outputs[0]}] = collective;
    }
    return Status::Ok();
  }

  /// Bytes of the rows that each member of a divided piece keeps. `element`: bytes of an element.
  std::vector<int64_t> RowBytes(size_t rank,
                                const Instruction& instruction,
                                int64_t element) const {
    const program::Piece* const piece =
        program::FindPiece(programs_[rank], instruction.parameter, instruction.piece);
    std::vector<int64_t> bytes;
    for (const int64_t rows : instruction.rows) {
      const Shape shape = piece != nullptr ? piece->box.extent : Shape{1};
      bytes.push_back(rows * (ElementCount(shape) / shape[0]) * element);
    }
    return bytes;
  }

  void Gather(size_t rank, const Instruction& instruction, int index) {
    const int collective = CollectiveOf(Lane::kReductions, instruction);
    if (Collective& work = At(collective); work.seconds == 0) {
      work.seconds = GatherSeconds(cluster_.links, instruction.group,
                                   RowBytes(rank, instruction, SizeOf(graph_.compute)));
    }
    Collect(rank, index, collective);
    gathers_[{rank, instruction.parameter}].push_back(collective);
  }

  Status Await(size_t rank, const Instruction& instruction, int index) {
    if (instruction.parameter >= 0) {
      for (const int collective : gathers_[{rank, instruction.parameter}]) {
        AddAwait(rank, collective, index);
      }
      return Status::Ok();
    }
    const auto found = awaited_.find({rank, instruction.inputs.at(0)});
    if (found != awaited_.end()) {  // Else a slice or a fill, which was complete at once.
      AddAwait(rank, found->second, index);
    }
    return Status::Ok();
  }

  void AddAwait(size_t rank, int collective, int index) {
    Flush(rank);
    Add(rank,
        {.kind = Action::Kind::kAwait,
         .seconds = Profile(rank).instruction_seconds,
         .collective = collective},
        index);
  }

  /// `index`: of the collective's last instruction.
  double ReductionSeconds(size_t rank, const Instruction& instruction, int index) const {
    std::vector<int> counts;
    for (const auto& nodes : instruction.contributions) {
      counts.push_back(static_cast<int>(nodes.size()));
    }
    if (!instruction.rows.empty()) {
      const std::vector<int64_t> shares =
          RowBytes(rank, instruction, SizeOf(graph_.master_dtype()));
      return counts.empty() ? ScatterSeconds(cluster_.links, instruction.group, shares)
                            : TreeScatterSeconds(cluster_.links, instruction.group, counts, shares);
    }
    int64_t bytes = 0;
    for (int i = index - instruction.part; i <= index; ++i) {
      const Instruction& sum = programs_[rank].instructions[static_cast<size_t>(i)];
      bytes +=
          sum.outputs.empty() ? ParameterBytes(sum.parameter) : SlotBytes(rank, sum.outputs[0]);
    }
    if (instruction.contributions.empty()) {
      return comm::AllReduceSeconds(cluster_.links, instruction.group, bytes);
    }
    return TreeSumSeconds(cluster_.links, instruction.group, counts, bytes);
  }

  void Vote(size_t rank, int index) {
    int64_t bytes = 0;  // Bytes that are read once for the sums of squares.
    for (const program::VoteShare::Norm& norm : programs_[rank].vote.norms) {
      bytes += SlotBytes(rank, norm.gradient);
    }
    Flush(rank);
    Add(rank,
        {.kind = Action::Kind::kVote,
         .seconds = Profile(rank).instruction_seconds + Profile(rank).ByteSeconds("copy", bytes)},
        index);
  }

  const graph::Graph& graph_;
  const std::vector<Program>& programs_;
  const ClusterProfile& cluster_;
  const bool timeline_;
  NodePrices prices_;
  Schedule schedule_;
  double pending_ = 0;
  int64_t vote_bytes_ = 0;
  std::map<std::tuple<int, int, uint64_t>, int> messages_;
  std::map<std::tuple<uint64_t, graph::ParameterId, std::vector<int>>, int> collectives_;
  std::map<std::pair<size_t, program::SlotId>, int> awaited_;  ///< By rank and exchange's output.
  std::map<std::pair<size_t, graph::ParameterId>, std::vector<int>> gathers_;  ///< By rank.
};

}  // namespace

Result<Simulation> Simulate(const graph::Graph& graph,
                            const std::vector<Program>& programs,
                            const ClusterProfile& cluster,
                            const SimulationOptions& options) {
  if (programs.empty() || programs.size() != cluster.workers.size()) {
    return InvalidArgumentError("{} programs for {} workers", programs.size(),
                                cluster.workers.size());
  }
  HEDDLE_RETURN_IF_ERROR(ValidateCluster(cluster));
  HEDDLE_ASSIGN_OR_RETURN(const Schedule schedule,
                          Translator(graph, programs, cluster, options).Run());
  HEDDLE_ASSIGN_OR_RETURN(ScheduleTimes times,
                          RunSchedule(schedule, cluster.links, options.timeline));
  Simulation simulation{.step_seconds = times.step_seconds,
                        .busy = std::move(times.busy),
                        .waiting = std::move(times.waiting),
                        .finish = std::move(times.finish),
                        .state_bytes = {},
                        .peak_bytes = {},
                        .exposed_reduction_seconds = times.exposed_reduction_seconds,
                        .timeline = std::move(times.timeline)};
  for (const Program& program : programs) {
    simulation.state_bytes.push_back(program::StateBytes(graph, program));
    simulation.peak_bytes.push_back(simulation.state_bytes.back() +
                                    program::PeakSlotBytes(program));
  }
  return simulation;
}

Result<Simulation> ScorePlan(const graph::Graph& graph,
                             const program::Plan& plan,
                             const ClusterProfile& cluster) {
  HEDDLE_ASSIGN_OR_RETURN(const ClusterProfile selected, SelectWorkers(cluster, plan.workers));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Program> programs, program::LowerAll(graph, plan));
  std::vector<graph::Graph> members;
  SimulationOptions options;
  if (!plan.layouts.empty()) {
    for (const Program& program : programs) {
      HEDDLE_ASSIGN_OR_RETURN(graph::Graph member, program::MemberGraph(graph, plan, program.rank));
      members.push_back(std::move(member));
    }
    for (const graph::Graph& member : members) {
      options.graphs.push_back(&member);
    }
  }
  return Simulate(graph, programs, selected, options);
}

}  // namespace heddle::planner
