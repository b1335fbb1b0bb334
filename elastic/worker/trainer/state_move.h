/// \file
/// One move, as one worker takes part in it: which boxes of the state go where, and their way
/// there. The state held is read and not changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "checkpoint/read/reader.h"
#include "comm/communicator.h"
#include "elastic/worker/replicas/replica_store.h"
#include "elastic/worker/trainer/chunk_hash.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "engine/program/state.h"

namespace heddle::elastic {

/// State travels under tags from this one on, apart from the Programs'.
inline constexpr uint64_t kMoveTag = uint64_t{1} << 60;

std::vector<comm::GroupMember> GroupMembers(
    const google::protobuf::RepeatedPtrField<wire::Member>& members);
/// -1: it is none of them.
int RankOf(const std::vector<comm::GroupMember>& members, const std::string& name);

/// Thread: one caller at a time.
class StateMove {
 public:
  /// `held`: what this worker holds; null: nothing. They all outlive this.
  StateMove(const JobContext& context,
            const wire::Start& start,
            const Generation* held,
            const ReplicaStore& replicas);

  /// First: what goes where under the plan `next`.
  Status Plan(const program::Plan& next);
  /// Workers that this one exchanges state with, as ranks of start.move_members; may repeat.
  std::vector<int> Peers() const;
  /// Makes next.state what `next` needs, over `group`, which connects start.move_members; counts
  /// what came, by its source. Errors: kDataLoss (what differs from its hash is in moved.refused),
  /// kNotFound (the source cannot be read), those of the group.
  Status Fill(comm::Communicator& group, Generation& next, StateMoved& moved) const;

 private:
  /// One box on its way.
  struct Message {
    const program::Transfer* transfer = nullptr;
    uint64_t tag = 0;
    bool receives = false;
    std::span<std::byte> in_place;  ///< The box's elements in a state. Empty: in `buffer`.
    Bytes buffer;
    std::vector<comm::Work> pieces;  ///< Under tags from `tag` on, and that of the hashes.
    std::vector<uint64_t> hashes;    ///< One a piece.
    std::span<std::byte> bytes() { return in_place.empty() ? std::span(buffer) : in_place; }
  };
  Status FillFromPeers(comm::Communicator& group, Generation& next, StateMoved& moved) const;
  Status PackHeld(Generation& next, std::vector<Message>& messages) const;
  Status UnpackReplicas(Generation& next, std::vector<Message>& messages, StateMoved& moved) const;
  Status CheckCoverage(const Lowered& next) const;
  std::vector<program::StateBox> OwnBoxes(const Lowered& next) const;
  void Begin(comm::Communicator& group, Message& message) const;
  Status Await(comm::Communicator& group,
               Generation& next,
               std::vector<Message>& messages,
               StateMoved& moved) const;
  Status AwaitPieces(comm::Communicator& group, Message& message) const;
  MovedState State() const;
  Status Verify(Message& message, StateMoved& moved) const;
  Status Read(const checkpoint::Reader& reader,
              std::span<const checkpoint::ReadRequest> requests) const;
  Status ReadState(const checkpoint::Reader& reader,
                   std::span<const program::StateBox> boxes,
                   runtime::ParameterState& state) const;
  Status FillFromCheckpoint(Generation& next, StateMoved& moved) const;
  int64_t BytesOf(const Box& box) const;
  Bytes BufferOf(const Box& box) const { return Bytes(static_cast<size_t>(BytesOf(box))); }

  const JobContext& context_;
  const graph::Graph& graph_;
  const std::string& worker_;  ///< Own name.
  const wire::Start& start_;
  const Generation* const held_;
  const ReplicaStore& replicas_;
  const std::vector<comm::GroupMember> members_;
  std::vector<program::HeldState> holders_;  ///< Of the state that the move begins with.
  std::vector<program::Transfer> transfers_;
};

}  // namespace heddle::elastic
