/// \file
/// Runs a set of Programs on symbolic values: every worker in turn until it blocks, with
/// asynchronous sends and blocking receives, until all have ended or none can go on.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "engine/program/program.h"
#include "engine/program/stages.h"
#include "engine/program/verify/verify_classes.h"
#include "engine/program/verify/verify_values.h"
#include "engine/program/verify/verify_workers.h"

namespace heddle::program {

/// A machine that runs Programs symbolically. Thread: one caller.
class VerifyMachine {
 public:
  VerifyMachine(const graph::Graph& graph,
                const Plan& plan,
                const std::vector<Program>& programs,
                Followed followed,
                VerifyWorkers workers);

  /// Runs the programs and checks them. Errors: kInternal naming worker and instruction.
  Status Run();

 private:
  using PieceName = std::pair<graph::ParameterId, int>;
  /// A norm of a piece, and who reports it.
  using Report = std::tuple<graph::ParameterId, int, int>;
  /// Whether it is an exchange, its index or node, and the microbatch.
  using RunKey = std::tuple<bool, int, int>;
  struct SlotState {
    enum class Life : uint8_t {
      kUnwritten,
      kPending,   ///< Of a reduction.
      kInFlight,  ///< Of an exchange.
      kLive,
      kFreed
    } life = Life::kUnwritten;
    SymbolicValue value = TensorValue{};
    size_t exchange = 0;  ///< In flight: its number in the group.
  };
  struct Worker {
    bool followed = false;  ///< Whether it is followed; if not, the other fields are unused.
    size_t next = 0;        ///< Index of the next instruction.
    std::vector<SlotState> slots = {};
    std::set<PieceName> updated = {};
    std::set<graph::ParameterId> gathered = {};  ///< Those whose gathers it has awaited.
    std::map<RunKey, int> runs = {};  ///< Of a member of a group: of nodes, and of exchanges.
    bool at_vote = false;
  };
  struct Message {
    SymbolicValue value = TensorValue{};
    graph::TensorType type = {};
    bool received = false;
  };
  struct Reduction {
    const Instruction* first = nullptr;  ///< The instruction of the first member to issue it.
    PieceName lead = {-1, 0};            ///< The first of its collective.
    std::set<int> arrived = {};
    SumValue sum = {};  ///< The leaves are unordered until all members have arrived.
  };
  using MessageKey = std::tuple<int, int, uint64_t>;  ///< Source, target, tag.

  const graph::Graph& graph_of(int rank) const { return *members_.of(rank).graph; }
  const Program& program(int rank) const { return programs_[static_cast<size_t>(rank)]; }
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }
  const Pipeline* PipelineOf(int rank) const;
  const Stage* StageOfRank(int rank) const;
  LeafNumbering NumberingOf(graph::ParameterId parameter) const;

  /// Runs until the worker blocks, votes or ends. Returns whether it ran any instruction.
  Result<bool> Advance(int rank);
  /// Runs an instruction; false: it has to wait.
  Result<bool> Step(int rank, const Instruction& instruction);
  Status StepLoad(int rank, const Instruction& instruction);
  Status StepRun(int rank, const Instruction& instruction);
  Status CountRun(int rank, const Instruction& instruction);
  Status WriteOutput(int rank, const Instruction& instruction, size_t output, graph::TensorId id);
  Status CountGroupRun(int rank, RunKey run, bool again);
  Status StepExchange(int rank, const Instruction& instruction);
  Status CheckExchanges(int rank);
  Result<bool> StepAwait(int rank, const Instruction& instruction);
  Status StepGather(int rank, const Instruction& instruction);
  Result<bool> AwaitGathers(int rank, const Instruction& instruction);
  Status CheckRows(const Instruction& instruction) const;
  Status ReadParameter(int rank, graph::ParameterId parameter) const;
  Status CheckGroupCoverage(const Pipeline& pipeline, const Stage& stage) const;
  Status StepSend(int rank, const Instruction& instruction);
  Result<bool> StepRecv(int rank, const Instruction& instruction);
  Status StepFold(int rank, const Instruction& instruction);
  Status StepReduce(int rank, const Instruction& instruction);
  Status CheckParts(int rank, const Instruction& instruction, Reduction& reduction) const;
  Status JoinReduction(int rank, const Instruction& instruction);
  Status Contribute(const Instruction& instruction,
                    int rank,
                    const std::vector<const SumValue*>& sums,
                    int64_t shift,
                    Reduction& reduction);
  Status StepUpdate(int rank, const Instruction& instruction);
  Status StepFree(int rank, const Instruction& instruction);

  Status Write(int rank, SlotId slot, graph::TensorId tensor, int microbatch, SymbolicValue value);
  Result<const SymbolicValue*> Read(int rank, SlotId slot) const;
  Result<const SumValue*> ReadSum(int rank, SlotId slot) const;
  Status ReadTensor(int rank, SlotId slot, graph::TensorId tensor, int microbatch) const;
  Status ExpectShape(const Instruction& instruction, size_t inputs, size_t outputs) const;
  Status ExpectOwnMicrobatch(int rank, int microbatch) const;
  Status ExpectPeer(int rank, int peer) const;

  Status Vote();
  Status VoteOf(int rank, std::set<Report>& norms, std::vector<bool>& losses);
  Status CheckComplete(const SumValue& sum, graph::ParameterId parameter, int piece) const;
  Status CheckGroupSums(int rank,
                        const Instruction& instruction,
                        const std::vector<const SumValue*>& sums) const;
  std::vector<LeafRange> LeavesOf(int rank,
                                  graph::ParameterId parameter,
                                  int piece,
                                  bool first) const;
  Status CheckReductions();
  Status CheckCoverage() const;
  Status CheckEnd() const;

  const graph::Graph& graph_;
  const Plan& plan_;
  const std::vector<Program>& programs_;
  const int64_t microbatches_;
  const bool exact_;
  const VerifyWorkers members_;
  std::vector<Position> positions_;  ///< By rank.
  const std::vector<int> ranks_;     ///< Ranks of the followed workers.
  const std::vector<std::vector<Twin>> twins_;
  std::vector<Worker> workers_;
  std::map<MessageKey, Message> messages_;
  std::map<PieceName, Reduction> reductions_;
  std::map<PieceName, std::set<int>> gathers_;  ///< Who has issued each.
  std::vector<uint8_t> runs_;                   ///< By node * microbatches + microbatch.
};

}  // namespace heddle::program
