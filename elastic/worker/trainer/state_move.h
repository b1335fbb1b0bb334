/// \file
/// One worker's part in a move of the state to a new plan: which boxes go where, and their
/// transfer. The held state is read and not changed.
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

/// The first tag of moves, which is above those of Programs' messages and below those of their
/// reductions.
inline constexpr uint64_t kMoveTag = uint64_t{1} << 60;

std::vector<comm::GroupMember> GroupMembers(
    const google::protobuf::RepeatedPtrField<wire::Member>& members);
/// The index of the member with this name; -1 if there is none.
int RankOf(const std::vector<comm::GroupMember>& members, const std::string& name);

/// A move. Thread: one caller at a time.
class StateMove {
 public:
  /// `held`: the generation that this worker holds; null: none. All arguments outlive this.
  StateMove(const JobContext& context,
            const wire::Start& start,
            const Generation* held,
            const ReplicaStore& replicas);

  /// Plans the transfers to the plan `next`; called before Peers and Fill. Errors: those of reading
  /// the source's plan, kInternal.
  Status Plan(const program::Plan& next);
  /// The workers that this one exchanges state with, as ranks in start.move_members; may repeat.
  std::vector<int> Peers() const;
  /// Fills next.state with all that the plan of `next` needs, over `group`, which connects
  /// start.move_members, or from a checkpoint. Counts the received bytes by source in `moved`.
  /// Errors: kDataLoss (pieces that differ from their hashes are in moved.refused), kNotFound (the
  /// source cannot be read), those of the group.
  Status Fill(comm::Communicator& group, Generation& next, StateMoved& moved) const;

 private:
  static constexpr int64_t kReadBytes = int64_t{256} << 20;  ///< Read from storage at once, about.
  /// A box that is sent or received.
  struct Message {
    const program::Transfer* transfer = nullptr;
    uint64_t tag = 0;
    bool receives = false;
    std::span<std::byte> in_place;  ///< The box's elements in a state; empty: they are in `buffer`.
    Bytes buffer;                   ///< The box, unless its elements are received in place.
    std::vector<comm::Work> pieces;  ///< One for each piece, from `tag` on, then one for `hashes`.
    std::vector<uint64_t> hashes;    ///< One for each piece.
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
  const std::string& worker_;  ///< Name of this worker.
  const wire::Start& start_;
  const Generation* const held_;
  const ReplicaStore& replicas_;
  const std::vector<comm::GroupMember> members_;
  std::vector<program::HeldState> holders_;  ///< Who holds which boxes before the move.
  std::vector<program::Transfer> transfers_;
};

}  // namespace heddle::elastic
