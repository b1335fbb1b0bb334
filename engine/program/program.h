/// \file
/// A Program is what one worker does in one step: a flat list of instructions. The same Program is
/// run by the runtime, priced by the simulator and checked by the reference interpreter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/reduction_tree.h"
#include "engine/graph/graph.h"
#include "engine/graph/sharding/sharded_graph.h"
#include "engine/program/plan.h"

namespace heddle::program {

using SlotId = int32_t;

/// Tags of messages, exchanges and reductions. All are below 2^63; what others send in the same
/// generation sets bit 63. A tensor of one microbatch goes to one worker at most once, and an
/// exchange makes one tensor, so (peer, tag) is unique within a step.
constexpr uint64_t MessageTag(graph::TensorId tensor, int microbatch) {
  return static_cast<uint64_t>(tensor) << 24 | static_cast<uint64_t>(microbatch);
}
/// `again`: of a segment whose forward runs again before its backward.
constexpr uint64_t ExchangeTag(graph::TensorId to, int microbatch, bool again = false) {
  return uint64_t{1} << 61 | uint64_t{again} << 60 | MessageTag(to, microbatch);
}
constexpr uint64_t ReduceTag(graph::ParameterId parameter, int piece = 0) {
  return uint64_t{1} << 62 | static_cast<uint64_t>(piece) << 32 | static_cast<uint64_t>(parameter);
}
constexpr uint64_t GatherTag(graph::ParameterId parameter, int piece) {
  return uint64_t{1} << 61 | ReduceTag(parameter, piece);
}

/// A value's place during the step. Slots are written once, except that kFold adds into `left`.
struct Slot {
  graph::TensorId tensor = -1;
  int microbatch = -1;  ///< -1 for parameters' summed gradients.
  graph::TensorType type = {};
};

enum class Code : uint8_t {
  kLoad,  ///< outputs[0] := the tokens or targets of `microbatch`.
  kRun,   ///< outputs := node(inputs); parameters are read from the worker's state.
  kSend,  ///< Sends inputs[0] to `peer` under `tag`; asynchronous: the value is kept until it has
          ///< left.
  kRecv,  ///< outputs[0] := the message from `peer` under `tag`; posted early, waited for here.
  kExchange,  ///< Makes `exchange` of Program::exchanges with the other members of `group`:
              ///< inputs[0] is what this worker has of its `from` (no input: nothing; -1: its own
              ///< part of a parameter), outputs[0] what it gets of its `to` (no output: nothing).
              ///< Asynchronous, issued in program order in a lane of its own, so that it never
              ///< stands behind a reduction; kSlice and kFill send nothing and are complete at
              ///< once, without a kAwait. As with kSend, inputs[0] may be freed at once. Members
              ///< that get one element get the same bits of it.
  kGather,    ///< Fills the compute copy of `piece` of `parameter`: each member of `group` has the
  ///< rows that it keeps (`rows`), and gets the others'. Asynchronous, issued in program
  ///< order with the reductions.
  kAwait,   ///< Waits until inputs[0], the output of a kExchange, may be read, or the compute copy
            ///< of `parameter` (no input): all of its kGather have ended.
  kFold,    ///< inputs[0] += inputs[1].
  kReduce,  ///< outputs[0] := the sum over `group` of all contributions to `piece` of
            ///< `parameter`, in tree order (exact: inputs[i] is contributions[own position][i])
            ///< or the all-reduce of one partial sum each (relaxed; no input: nothing is added,
            ///< because another member of the group has counted what this one has). All get the
            ///< same bits, or with `rows` each gets the rows that it keeps (no output: none).
            ///< Asynchronous, issued in program order; complete before kVote. One collective makes
            ///< the sums of `parts` such instructions, which follow each other.
  kVote,    ///< Waits for all reductions; exchanges sums of squares and losses; decides the step.
  kUpdate,  ///< AdamW on what this worker keeps of `piece` of `parameter` with gradient inputs[0];
            ///< refreshes its compute copy.
  kFree,    ///< No instruction uses inputs[0] again. What is still being sent, exchanged or reduced
            ///< is kept until that has ended.
};

struct Instruction {
  Code code = Code::kRun;
  graph::NodeId node = -1;          ///< kRun.
  int microbatch = -1;              ///< kLoad, kRun, kSend, kRecv, kExchange.
  std::vector<SlotId> inputs = {};  ///< For kRun: by node input; -1 where the input is a parameter.
  std::vector<SlotId> outputs = {};
  int peer = -1;                      ///< kSend, kRecv: rank.
  uint64_t tag = 0;                   ///< kSend, kRecv, kExchange, kReduce, kGather.
  int exchange = -1;                  ///< kExchange: index in Program::exchanges.
  graph::ParameterId parameter = -1;  ///< kReduce, kGather, kUpdate; kAwait: -1 with an input.
  int piece = 0;                      ///< kReduce, kGather, kUpdate: Piece::index.
  /// kReduce, kGather: ranks, ascending, own among them. kExchange: those of the stage's group, by position.
  std::vector<int> group = {};
  /// kReduce, exact: by position in the group.
  std::vector<std::vector<TreeNode>> contributions = {};
  /// kReduce and kGather of a piece whose optimizer state is divided: by position in the group, how
  /// many rows that member keeps, in their order.
  std::vector<int64_t> rows = {};
  int part = 0;  ///< kReduce: number among those of one collective.
  int parts =
      1;  ///< kReduce: how many one collective makes; alike in group and contributions, without rows.
};

/// kVote's share of this worker.
struct VoteShare {
  struct Norm {
    graph::ParameterId parameter = -1;
    SlotId gradient = -1;
    int piece = 0;
  };
  struct Loss {
    int microbatch = -1;
    SlotId slot = -1;
  };
  std::vector<Norm> norms = {};   ///< Pieces of parameters that this worker owns.
  std::vector<Loss> losses = {};  ///< Microbatches whose loss this worker computed.
};

/// A part of a parameter that each worker has wholly or not at all. Its gradient is summed over the
/// workers that have it, and they apply it alike.
struct Piece {
  graph::ParameterId parameter = -1;
  int index = 0;  ///< Among the parameter's pieces, by ascending offset.
  Box box = {};
  /// The rows whose master and moments the worker keeps, of no elements if it keeps none. Not set:
  /// all of `box`.
  std::optional<Box> kept = {};
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct Program {
  int64_t generation = 0;
  int rank = 0;
  int workers = 0;
  Determinism determinism = Determinism::kExact;
  std::vector<Slot> slots = {};
  std::vector<Instruction> instructions = {};
  /// The exchanges of the stage's group, alike for all of its members.
  std::vector<graph::Exchange> exchanges = {};
  VoteShare vote = {};
  std::vector<graph::ParameterId> parameters = {};  ///< Held by this worker, ascending.
  /// What a member of a group has of `parameters`, by (parameter, index). Those of one parameter
  /// make up one box. Every worker of a plan that divides the optimizer lists them. Empty: all of
  /// each, in one piece.
  std::vector<Piece> pieces = {};
  std::vector<int> peers = {};  ///< Ranks it exchanges messages with, ascending.
  /// Index of kVote in `instructions`: before it nothing is applied, after it only kUpdate and
  /// kFree.
  size_t vote_index = 0;
};

/// The piece of a parameter with this index in the list of `program`; null: it lists none.
const Piece* FindPiece(const Program& program, graph::ParameterId parameter, int index);

/// The part of a piece whose master and moments the worker keeps.
const Box& KeptBox(const Piece& piece);

/// The part of a parameter that the worker of `program` has, which it reads as one tensor.
/// Precondition: it is one of `program.parameters`.
Box HeldBox(const Program& program, const graph::Graph& graph, graph::ParameterId parameter);

/// Every instruction on a line, for tests, people and the hash. `graph` is the one whose nodes the
/// Program names (MemberGraph in stage_graph.h).
std::string ToString(const Program& program, const graph::Graph& graph);

/// 64-bit hash of everything that decides what a worker does; equal on all machines.
uint64_t ProgramHash(const Program& program, const graph::Graph& graph);

}  // namespace heddle::program
