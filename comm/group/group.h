/// \file
/// A generation's group: one channel per pair of members and traffic class, and the group's life
/// from forming to its end. A pair's traffic classes fail together: when the peer is lost on one,
/// operations on the other fail, too. A peer that leaves or aborts says so on each, so that
/// messages that it sent before still arrive; a traffic class that breaks afterwards is no loss.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/communicator.h"
#include "comm/group/call_diagnosis.h"
#include "comm/group/call_numbers.h"
#include "comm/group/group_segments.h"
#include "comm/group/peer_losses.h"
#include "comm/group/scratch.h"
#include "comm/message/awaited_peers.h"
#include "comm/message/call_signature.h"
#include "comm/message/channel.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// The group of a generation on one worker. Thread: any. Only channels may outlive it; callbacks
/// hold it weakly.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// `options.peers` include the neighbours in the binary tree and are ascending and unique.
  Group(std::shared_ptr<EventLoop> loop,
        GroupOptions options,
        std::shared_ptr<SharedRegions> regions);

  const GroupOptions& options() const { return options_; }
  int size() const { return static_cast<int>(options_.members.size()); }
  bool IsPeer(int rank) const {
    return rank >= 0 && rank < size() && is_peer_[static_cast<size_t>(rank)];
  }

  // Forming.
  /// Adds a traffic class's connection to `channel.peer` unless there is one already or the group
  /// has ended.
  void Attach(std::unique_ptr<Connection> connection, ChannelOptions channel)
      HEDDLE_EXCLUDES(mutex_);
  bool IsAttached(int peer, TrafficClass traffic_class) const HEDDLE_EXCLUDES(mutex_);
  void FailForming(const Status& status) HEDDLE_EXCLUDES(mutex_);
  /// Waits until every traffic class of every peer is attached. Errors: the first failure;
  /// kDeadlineExceeded names the missing peers.
  Status WaitFormed(Deadline deadline) HEDDLE_EXCLUDES(mutex_);

  // Once formed.
  std::shared_ptr<Work::State> Send(int peer,
                                    MessageKey key,
                                    std::span<const std::byte> data,
                                    bool urgent);
  std::shared_ptr<Work::State> Recv(int peer,
                                    MessageKey key,
                                    std::span<std::byte> data,
                                    bool urgent);
  CallNumbers& calls() { return calls_; }
  /// Name of the transport that carries bulk to `peer`; "self" for this worker's own rank, "none"
  /// for a peer without a connection.
  std::string transport(int peer) const;
  /// The wait policy of the group's collectives.
  CallWaits& waits() { return *waits_; }
  /// The channel to `peer`. Errors: kInvalidArgument (no such rank), kFailedPrecondition (not
  /// connected).
  Result<std::shared_ptr<Channel>> ChannelOf(int peer, TrafficClass traffic_class) const
      HEDDLE_EXCLUDES(mutex_);
  /// The shared segments of groups of members on this host.
  GroupSegments& segments() { return segments_; }
  ScratchPool& scratch() { return scratch_; }
  Driver& driver(TrafficClass traffic_class) { return *drivers_[IndexOf(traffic_class)]; }
  std::vector<int64_t> BytesSent() const;

  PeerLosses& losses() { return *losses_; }
  /// The peers that waits of this worker are for; while the group forms, the peers that are not
  /// connected yet.
  AwaitedPeers& awaited() const { return *awaited_; }

  void Abort(const Status& reason) HEDDLE_EXCLUDES(mutex_) {
    End(AbortedError("{}", reason.message()), true);
  }
  /// Leaves the group in good order. If a peer has aborted it, the other peers are notified of that
  /// abort instead, because they may not know of it yet.
  void Leave() HEDDLE_EXCLUDES(mutex_);
  bool ended() const HEDDLE_EXCLUDES(mutex_);

 private:
  void End(const Status& reason, bool aborted) HEDDLE_EXCLUDES(mutex_);
  /// Handles the end of a channel. Returns the status that its operations end with.
  Status OnChannelEnd(int peer, TrafficClass traffic_class, const Status& status, bool lost)
      HEDDLE_EXCLUDES(mutex_);

  const std::shared_ptr<EventLoop> loop_;
  const GroupOptions options_;
  std::vector<bool> is_peer_;
  /// One driver per traffic class, so that a thread that drives bulk does not delay a wait for an
  /// urgent message.
  const std::array<std::shared_ptr<Driver>, kTrafficClasses> drivers_{std::make_shared<Driver>(),
                                                                      std::make_shared<Driver>()};
  const std::shared_ptr<SharedRegions> regions_;
  GroupSegments segments_;
  const std::unique_ptr<CallWaits> waits_;
  CallNumbers calls_;
  const std::shared_ptr<PeerLosses> losses_;
  const std::shared_ptr<AwaitedPeers> awaited_;  ///< Channels may outlive the group.
  ScratchPool scratch_;

  mutable Mutex mutex_;
  CondVar changed_;
  struct Pair {
    std::array<std::shared_ptr<Channel>, kTrafficClasses>
        traffic_classes;  ///< Null: not yet, or no peer.
    std::shared_ptr<FrameCounts> frames;
    Status last_words;  ///< The peer's notification that it aborted or leaves; ok: none came.
  };
  std::vector<Pair> pairs_ HEDDLE_GUARDED_BY(mutex_);  ///< By rank.
  size_t missing_ HEDDLE_GUARDED_BY(mutex_) = 0;       ///< Channels that are not attached yet.
  Status forming_failure_ HEDDLE_GUARDED_BY(mutex_);
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  Status end_reason_ HEDDLE_GUARDED_BY(mutex_);
  Status peer_abort_ HEDDLE_GUARDED_BY(mutex_);  ///< The first abort of a peer; ok: none.
  bool formed_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::comm
