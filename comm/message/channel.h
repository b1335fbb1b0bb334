/// \file
/// All messages of one traffic class (traffic_class.h) between this worker and one peer of a
/// generation, over whatever connection joins them.
///
/// Small messages are sent at once (eager) within a window that the receiver frees as it matches
/// them. A larger message, or one for which the window has no room, is announced by a request and
/// waits at the sender until its Recv is posted (rendezvous), so that a receiver's memory is
/// bounded and bulk is received in the posted buffer without a copy. Messages of one key match in
/// the order in which they were sent.
///
/// A channel adds a lock and a life cycle to its parts, which know neither:
///   sender.h    which frame goes next       receiver.h    what a frame of the peer means
///   credits.h   the eager window            rendezvous.h  messages announced by a request
///   matching.h  messages and Recvs by key   placement.h   what devices carry
///   frame_reader.h, frame_writer.h, metered_stream.h      frames over a paced stream
///   loop_watch.h                            whether the loop or a caller's thread drives it
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/message/awaited_peers.h"
#include "comm/message/driver.h"
#include "comm/message/matching.h"
#include "comm/message/operation.h"
#include "comm/message/placement.h"
#include "comm/message/receiver.h"
#include "comm/message/sender.h"
#include "comm/stream/event_loop.h"
#include "comm/stream/frame.h"
#include "comm/stream/loop_watch.h"
#include "comm/stream/metered_stream.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/traffic_class.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Counts an endpoint's channels that still have a connection. Thread: any.
class OpenCount {
 public:
  void Add(int change) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    count_ += change;
    changed_.NotifyAll();
  }
  /// Waits until the count is 0, at most until `deadline`.
  void WaitForNone(Deadline deadline) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ > 0 && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

struct ChannelOptions {
  int peer = 0;
  TrafficClass traffic_class = TrafficClass::kBulk;
  std::string peer_name;
  int64_t generation = 0;
  Duration operation_timeout{};
  /// Whether a waiting caller may spin: there is a core for each member on this host.
  bool may_spin = false;
  std::shared_ptr<TokenBucket> outgoing;  ///< The worker's emulated link, outgoing direction.
  std::shared_ptr<TokenBucket> incoming;  ///< The worker's emulated link, incoming direction.
  metrics::Counter* sent_bytes = nullptr;
  metrics::Counter* placed_bytes = nullptr;  ///< Bytes of sent_bytes that RDMA wrote directly.
  metrics::Counter* received_bytes = nullptr;
  metrics::Counter* lost = nullptr;  ///< Lost peers.
  /// Called when the peer ends the connection: the peer was `lost`, or it left or aborted. Runs on
  /// the loop thread, with no lock held, before any operation ends; returns the status that the
  /// operations end with. Not called after Fail.
  std::function<Status(const Status&, bool lost)> on_end;
  std::shared_ptr<OpenCount> open;
  // Set by the group.
  std::shared_ptr<Driver> driver;       ///< The driver of all channels of this traffic class.
  std::shared_ptr<FrameCounts> frames;  ///< The frame counts of both channels of the pair.
  std::shared_ptr<SharedRegions> regions;
  std::shared_ptr<AwaitedPeers> awaited;  ///< The group's; null: waits are not counted.
  std::shared_ptr<WaitReports> reports;   ///< Receives the peer's wait reports; null: none does.
};

/// A channel to one peer. Thread: any. It has more than 25 methods because it has four kinds of
/// callers: operations, the group that ends it, the driver, and the diagnosis of waits.
class Channel : public Watched, public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<EventLoop> loop,
          std::unique_ptr<Connection> connection,
          ChannelOptions options);
  ~Channel() override;

  /// Starts to watch the connection; called once.
  void Start() HEDDLE_EXCLUDES(mutex_);

  std::shared_ptr<Operation> Send(MessageKey key, std::span<const std::byte> data)
      HEDDLE_EXCLUDES(mutex_);
  std::shared_ptr<Operation> Recv(MessageKey key, std::span<std::byte> data)
      HEDDLE_EXCLUDES(mutex_);
  /// Takes an operation away from the channel and ends it with `status`.
  void CancelOperation(Operation& operation, const Status& status) HEDDLE_EXCLUDES(mutex_);

  /// Hands a descriptor to a peer on this host (DescriptorPassing::Send). Further errors:
  /// kUnimplemented (the connection passes none), the end of a channel that is not open.
  Status SendDescriptor(uint64_t id, int fd) HEDDLE_EXCLUDES(mutex_);
  /// Takes a descriptor that the peer handed over (DescriptorPassing::Take). Further errors as for
  /// SendDescriptor.
  Result<UniqueFd> TakeDescriptor(uint64_t id) HEDDLE_EXCLUDES(mutex_);
  /// Counts bytes that members exchanged through a shared segment instead of this channel.
  void CountShared(int64_t sent, int64_t received) { stream_.CountShared(sent, received); }

  /// Ends all operations with `reason` and notifies the peer that this worker aborted (`aborted`)
  /// or leaves. Never blocks; the connection lingers on the loop, at most a second, until the peer
  /// has read the notification.
  void Close(const Status& reason, bool aborted) HEDDLE_EXCLUDES(mutex_);
  /// Ends all operations with `status` and drops the connection, because the pair is broken.
  /// Messages of the peer that have arrived in whole can still be received.
  void Fail(const Status& status) HEDDLE_EXCLUDES(mutex_);
  /// Whether the connection is gone.
  bool closed() const HEDDLE_EXCLUDES(mutex_);
  /// Drops the connection now and ends the remaining operations.
  void Reset() HEDDLE_EXCLUDES(mutex_);

  /// Properties of the connection (ConnectionInfo), valid also after the connection is gone.
  const std::string& transport() const { return stream_.info().transport; }
  const std::string& port() const { return stream_.info().port; }
  bool passes_descriptors() const { return stream_.info().descriptors != nullptr; }
  bool places() const { return stream_.info().placement != nullptr; }
  /// Implements Communicator::RegisterDeviceMemory.
  Status RegisterDeviceMemory(std::span<const std::byte> bytes) HEDDLE_EXCLUDES(mutex_);
  /// Process ID of the peer (DescriptorPassing::peer_process); 0: unknown, or on another host.
  pid_t peer_process() const { return peer_process_; }
  const ChannelOptions& options() const { return options_; }
  int64_t bytes_sent() const { return stream_.bytes_sent(); }

  /// A snapshot of the channel's unfinished operations and messages.
  struct Snapshot {
    bool open = false;   ///< The channel is open; if not, the other fields are empty.
    bool waits = false;  ///< An operation that was asked about is in flight.
    std::vector<UnexpectedMessage> unexpected;
  };
  /// Takes a snapshot for the diagnosis of a wait. `awaited` selects the operations for
  /// Snapshot::waits, `unexpected` the messages for Snapshot::unexpected.
  Snapshot Inspect(const KeyPredicate& awaited, const KeyPredicate& unexpected) const
      HEDDLE_EXCLUDES(mutex_);
  /// Sends the peer a report of a wait, a frame of kind kWaiting. No effect unless open.
  void Report(const FrameHeader& report) HEDDLE_EXCLUDES(mutex_);

  /// The result of DriveOnce for the driver (driver.h).
  struct Look {
    bool in_use = false;         ///< Operations are in flight that the driver has to move.
    bool moved = false;          ///< Bytes were moved.
    Connection::Watch sleep_on;  ///< Connection::SleepOn.
  };
  /// Moves the bytes that can be moved now, in the thread of a caller that waits for `awaited`.
  /// Losses are left to the loop. `woken`: the descriptor of the last `sleep_on` was ready.
  Look DriveOnce(const Work::State& awaited, bool woken, Time now) HEDDLE_EXCLUDES(mutex_);
  /// Called before the driver sleeps. False: do not sleep, there are bytes to move.
  bool PrepareToSleep() HEDDLE_EXCLUDES(mutex_);
  /// Ends the driver's turn. With a lease the driver is expected back at once; else the loop takes
  /// over.
  void EndDrive(bool lease) HEDDLE_EXCLUDES(mutex_);

 private:
  enum class Phase : uint8_t { kOpen, kLingering, kClosed };

  // Called by the loop.
  void HandleReady(int fd, uint32_t events) override HEDDLE_EXCLUDES(mutex_);
  void HandleTimer(Time time) override HEDDLE_EXCLUDES(mutex_);
  bool WaitsForOtherClass() HEDDLE_REQUIRES(mutex_);
  void NotifyEnd(Status& failure, bool lost, Operations& ended) HEDDLE_EXCLUDES(mutex_);

  // Moving bytes.
  Status Receive(const Work::State* awaited) HEDDLE_REQUIRES(mutex_);
  Status Pump() HEDDLE_REQUIRES(mutex_);
  void PumpFromCaller() HEDDLE_REQUIRES(mutex_);
  /// Whether a caller's thread drives the channel or holds a lease on it, and nothing that has to
  /// move needs the loop.
  bool IsDriven() const HEDDLE_REQUIRES(mutex_);
  void Release(bool lease) HEDDLE_REQUIRES(mutex_);
  void Rearm() HEDDLE_REQUIRES(mutex_);

  // Ending.
  /// Leaves an error in a caller's thread to the loop, so that losses are reported from one place.
  void LeaveToLoop(const Status& status, Time now) HEDDLE_REQUIRES(mutex_);
  Operations TakeOperations() HEDDLE_REQUIRES(mutex_);
  bool IsInDevice() const HEDDLE_REQUIRES(mutex_);
  void Shut() HEDDLE_REQUIRES(mutex_);

  const ChannelOptions options_;

  mutable Mutex mutex_;
  Phase phase_ HEDDLE_GUARDED_BY(mutex_) = Phase::kOpen;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);  ///< Status of new operations once not open.
  Status broken_ HEDDLE_GUARDED_BY(mutex_);   ///< An error that the loop has to handle.
  bool write_closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  /// Time until which the other traffic class may report why the connection broke.
  Time reason_due_ HEDDLE_GUARDED_BY(mutex_);

  MeteredStream stream_;  ///< Guarded by mutex_, except for its info and byte counts.
  const pid_t peer_process_;
  LoopWatch watch_ HEDDLE_GUARDED_BY(mutex_);
  Placement placement_ HEDDLE_GUARDED_BY(mutex_);
  Sender sender_ HEDDLE_GUARDED_BY(mutex_);
  Receiver receiver_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
