/// \file
/// The MPI requests of one traffic class of a group: posted receives for every peer, sends in
/// flight, and heartbeats. Thread: the MPI thread only, except for the functions of MpiPipes and
/// Close.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "comm/mpi/engine.h"

namespace heddle::comm {

/// The status of a failed MPI call, with MPI's error text: "MPI_Isend: …".
Status MpiError(int code, const char* call);

/// Keeps memory alive until the process ends, because MPI may still access it and cannot be
/// stopped.
void KeepForever(std::shared_ptr<void> memory);

class MpiEngine::Pipes final : public MpiPipes {
 public:
  struct Options {
    int rank = 0;
    std::vector<std::unique_ptr<MpiPipe>> pipes;  ///< By rank; null for this process's rank.
    Duration silence_timeout{};
    std::function<void()> wake;
    std::function<void(const Status&)> poison;
  };

  explicit Pipes(Options options);

  MpiPipe& pipe(int peer) override { return *options_.pipes[static_cast<size_t>(peer)]; }
  void Notify(int peer) override HEDDLE_EXCLUDES(mutex_);

  /// Posts the receives in `communicator`, which only this traffic class uses. Must be called
  /// before the first Turn.
  void Begin(MPI_Comm communicator);
  /// Closes every pipe of a group that could not be formed, so that the traffic class ends; it need
  /// not have begun. Thread: any.
  void Close() HEDDLE_EXCLUDES(mutex_);
  /// Moves the messages that can be moved. Returns whether any did.
  bool Turn(Time now);
  /// Whether sends other than heartbeats are in flight. They need turns of both sides, because MPI
  /// makes no progress by itself.
  bool InFlight() const { return in_flight_ > 0; }
  /// Whether the traffic class is done: this side and every peer have ended or failed.
  bool Over(Time now) const;
  /// Cancels the receives, never frees the memory that MPI may still use, and fails the pipes.
  /// Frees the communicator if the class ended on both sides. No MPI calls are made afterwards.
  void Release();
  /// Ends every pipe with `reason`, which concerns the whole group.
  void Fail(const Status& reason);

 private:
  enum Tag : int { kData = 1, kCredit, kEnd, kHeartbeat };
  static constexpr size_t kReceives = 2;  ///< Receives posted for each peer.

  struct Sending {
    int peer = 0;
    Tag tag = kHeartbeat;
    uint32_t credits = 0;
    std::unique_ptr<MpiPiece> piece;
  };
  struct Receiving {
    std::unique_ptr<MpiPiece> piece;
    bool arrived = false;
    MPI_Status status{};
  };
  struct Peer {
    Time heard;
    size_t next_receive = 0;  ///< Messages are handled in the order in which receives were posted.
    bool beat_in_flight = false;
    bool end_sent = false;
    bool end_received = false;
    bool failed = false;
  };

  bool SendReady() HEDDLE_EXCLUDES(mutex_);
  void Serve(int rank);
  void Send(std::unique_ptr<Sending> sending);
  bool TestSends();
  bool TestReceives(Time now);
  void Receive(int peer, size_t slot);
  void Handle(int rank, Receiving& receiving);
  void Beat(Time now);
  void FailPeer(int rank, const Status& reason);
  /// Whether all peers and this side have ended without a failure.
  bool Ended() const;
  bool IsPeer(int rank) const { return rank != options_.rank; }

  const Options options_;
  const Duration beat_interval_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  Time next_beat_;
  Time last_turn_;
  Time closed_at_ = Time::max();  ///< Time at which this side sent its last end.
  size_t open_ = 0;               ///< Number of peers to which no end was sent yet.
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Sending>> sendings_;
  size_t in_flight_ = 0;  ///< Number of sendings_ that are not heartbeats.
  std::vector<MPI_Request> send_requests_;
  std::vector<Receiving> receivings_;  ///< kReceives for each rank.
  std::vector<MPI_Request> receive_requests_;
  std::vector<int> indices_;  ///< Output of MPI_Testsome.
  std::vector<MPI_Status> statuses_;

  Mutex mutex_;
  std::vector<int> ready_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<bool> is_ready_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
