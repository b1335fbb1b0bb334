#include "planner/predictor/simulator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "comm/cost/cost.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/memory.h"

namespace heddle::planner {
namespace {

using program::Code;
using program::Instruction;
using program::Program;

/// Seconds of nodes; each distinct signature is priced once for each worker.
class NodePrices {
 public:
  NodePrices(const graph::Graph& graph, const std::vector<program::WorkerProfile>& workers)
      : graph_(graph),
        workers_(workers),
        kind_(graph.nodes.size()),
        prices_(workers.size()) {
    std::unordered_map<std::string, int> kinds;
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      const auto found = kinds.emplace(graph::NodeSignature(graph, graph.nodes[node]),
                                       static_cast<int>(kinds.size()));
      kind_[node] = static_cast<size_t>(found.first->second);
    }
    for (auto& prices : prices_) {
      prices.assign(kinds.size(), -1);
    }
  }

  double Seconds(size_t rank, graph::NodeId node) {
    double& price = prices_[rank][kind_[static_cast<size_t>(node)]];
    if (price < 0) {
      price = workers_[rank].Seconds(graph_, graph_.node(node));
    }
    return price;
  }

 private:
  const graph::Graph& graph_;
  const std::vector<program::WorkerProfile>& workers_;
  std::vector<size_t> kind_;
  std::vector<std::vector<double>> prices_;
};

/// Turns Programs into a Schedule.
class Translator {
 public:
  Translator(const graph::Graph& graph,
             const std::vector<Program>& programs,
             const ClusterProfile& cluster,
             bool timeline)
      : graph_(graph),
        programs_(programs),
        cluster_(cluster),
        timeline_(timeline),
        prices_(graph, cluster.workers) {}

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

  int64_t SlotBytes(size_t rank, program::SlotId slot) const {
    return programs_[rank].slots[static_cast<size_t>(slot)].type.bytes();
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
        Compute(rank,
                fixed + Profile(rank).ByteSeconds("update", ParameterBytes(instruction.parameter)),
                index);
        return Status::Ok();
      case Code::kFree:
        return Status::Ok();
      case Code::kSend:
      case Code::kRecv:
        return Transfer(rank, instruction, index);
      case Code::kExchange:
      case Code::kAwait:
        return InvalidArgumentError("worker {} instruction {}: exchanges of a group have no price",
                                    rank, index);
      case Code::kReduce:
        return Reduce(rank, instruction, index);
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
    const auto key = std::tuple(instruction.tag, instruction.parameter, instruction.group);
    const auto found = reductions_.emplace(key, static_cast<int>(schedule_.reductions.size()));
    if (found.second) {
      schedule_.reductions.push_back(
          {.members = instruction.group, .seconds = ReductionSeconds(instruction)});
    }
    Flush(rank);
    Add(rank,
        {.kind = Action::Kind::kReduce,
         .seconds = Profile(rank).instruction_seconds,
         .reduction = found.first->second},
        index);
    return Status::Ok();
  }

  double ReductionSeconds(const Instruction& instruction) const {
    const int64_t bytes = ParameterBytes(instruction.parameter);
    if (instruction.contributions.empty()) {
      return comm::AllReduceSeconds(cluster_.links, instruction.group, bytes);
    }
    std::vector<int> counts;
    for (const auto& nodes : instruction.contributions) {
      counts.push_back(static_cast<int>(nodes.size()));
    }
    return comm::ReduceTreeSeconds(cluster_.links, instruction.group, counts, bytes);
  }

  void Vote(size_t rank, int index) {
    int64_t bytes = 0;  // Bytes that are read once for the sums of squares.
    for (const program::VoteShare::Norm& norm : programs_[rank].vote.norms) {
      bytes += ParameterBytes(norm.parameter);
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
  std::map<std::tuple<uint64_t, graph::ParameterId, std::vector<int>>, int> reductions_;
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
                          Translator(graph, programs, cluster, options.timeline).Run());
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
  HEDDLE_RETURN_IF_ERROR(program::ValidateUngrouped(plan, graph));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Program> programs, program::LowerAll(graph, plan));
  return Simulate(graph, programs, selected);
}

}  // namespace heddle::planner
