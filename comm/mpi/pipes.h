/// \file
/// One group's messages over MPI: receives that stand ready for every peer, sends in flight, signs
/// of life. For the MPI thread alone, but for what MpiPipes promises.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "comm/mpi/engine.h"

namespace heddle::comm {

/// "MPI_Isend: …", with MPI's own words.
Status MpiError(int code, const char* call);

/// For memory that MPI may still touch: it cannot be told to stop.
void KeepForever(std::shared_ptr<void> memory);

class MpiEngine::Pipes final : public MpiPipes {
 public:
  struct Options {
    int rank = 0;
    std::vector<std::unique_ptr<MpiPipe>> pipes;  ///< By rank; null for the own one.
    Duration silence_timeout{};
    std::function<void()> wake;
    std::function<void(const Status&)> poison;
  };

  explicit Pipes(Options options);

  MpiPipe& pipe(int peer) override { return *options_.pipes[static_cast<size_t>(peer)]; }
  void Notify(int peer) override HEDDLE_EXCLUDES(mutex_);

  /// Posts the receives in `communicator`, the traffic class's own. Before the first Turn.
  void Begin(MPI_Comm communicator);
  /// Closes every pipe for a group that will not be: the traffic class ends by itself, also one
  /// that has not begun. Thread: any.
  void Close() HEDDLE_EXCLUDES(mutex_);
  /// Moves what can be moved; whether anything did.
  bool Turn(Time now);
  /// Whether messages wait for a peer's or this side's turns: MPI moves nothing by itself.
  bool InFlight() const { return in_flight_ > 0; }
  /// Whether nothing is left to be done: every peer has ended or failed, and so has this side.
  bool Over(Time now) const;
  /// Gives up what MPI still holds; the traffic class makes no MPI calls afterwards.
  void Release();
  /// Ends every pipe with `reason`; a reason for the whole group.
  void Fail(const Status& reason);

 private:
  enum Tag : int { kData = 1, kCredit, kEnd, kBeat };
  static constexpr size_t kReceives = 2;  ///< Ready for each peer.

  struct Sending {
    int peer = 0;
    Tag tag = kBeat;
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
  /// Over in good order.
  bool Ended() const;
  bool IsPeer(int rank) const { return rank != options_.rank; }

  const Options options_;
  const Duration beat_interval_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  Time next_beat_;
  Time last_turn_;
  Time closed_at_ = Time::max();  ///< When this side had sent its last end.
  size_t open_ = 0;               ///< Peers to which no end was sent.
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Sending>> sendings_;
  size_t in_flight_ = 0;  ///< Of them, those that are no beats.
  std::vector<MPI_Request> send_requests_;
  std::vector<Receiving> receivings_;  ///< kReceives for each rank.
  std::vector<MPI_Request> receive_requests_;
  std::vector<int> indices_;  ///< Scratch of MPI_Testsome.
  std::vector<MPI_Status> statuses_;

  Mutex mutex_;
  std::vector<int> ready_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<bool> is_ready_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
