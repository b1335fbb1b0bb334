/// \file
/// All messages of one traffic class (traffic_class.h) between this worker and one peer of a
/// generation, over whatever connection joins them.
///
/// Small messages travel at once (eager) within a window that the receiver frees as it matches
/// them; a message that is larger, or finds the window full, asks first and waits at the sender
/// until its Recv is posted (rendezvous), so that a receiver's memory is bounded and bulk lands in
/// the posted buffer without a copy. Messages of one tag match in the order in which they were
/// sent.
///
/// A channel is a lock and a life around its parts, which know neither:
///   sender.h    which frame goes next       receiver.h    what a frame of the peer means
///   credits.h   the eager window            rendezvous.h  messages that ask first
///   matching.h  messages and Recvs by key   placement.h   what devices carry
///   frame_reader.h, frame_writer.h, metered_stream.h      frames over a paced stream
///   loop_watch.h                            whether the loop or a caller's thread moves it
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

/// How many of an endpoint's channels still have a connection. Thread: any.
class OpenCount {
 public:
  void Add(int change) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    count_ += change;
    changed_.NotifyAll();
  }
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
  /// The members on this host have a core each, so that a caller that waits may keep its own.
  bool may_spin = false;
  std::shared_ptr<TokenBucket> outgoing;  ///< The worker's emulated link.
  std::shared_ptr<TokenBucket> incoming;
  metrics::Counter* sent_bytes = nullptr;
  metrics::Counter* placed_bytes = nullptr;  ///< Of them; not of connections that place nothing.
  metrics::Counter* received_bytes = nullptr;
  metrics::Counter* lost = nullptr;
  /// The peer ended it: `lost`, or left or aborted in good order. Loop thread, no lock held, before
  /// any operation ends. Returns what they end with. Not called after Fail.
  std::function<Status(const Status&, bool lost)> on_end;
  std::shared_ptr<OpenCount> open;
  // Set by the group.
  std::shared_ptr<Driver> driver;       ///< Of all channels of this traffic class.
  std::shared_ptr<FrameCounts> frames;  ///< The pair's.
  std::shared_ptr<SharedRegions> regions;
  std::shared_ptr<AwaitedPeers> awaited;  ///< Of the group; null: waits are not told.
  std::shared_ptr<WaitReports> reports;   ///< Null: what the peer says of its waits is dropped.
};

/// Thread: any. It has more than 25 methods because it has four kinds of callers: who sends and
/// receives, who ends it, who drives it, and who asks why a wait lasts.
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

  /// DescriptorPassing's, for a peer on this host. Errors also: kUnimplemented (it passes none).
  Status SendDescriptor(uint64_t id, int fd) HEDDLE_EXCLUDES(mutex_);
  Result<UniqueFd> TakeDescriptor(uint64_t id) HEDDLE_EXCLUDES(mutex_);
  /// Bytes that went through memory shared by a group and not through this channel.
  void CountShared(int64_t sent, int64_t received) { stream_.CountShared(sent, received); }

  /// Ends all operations with `reason` and tells the peer: that this worker aborted (`aborted`), or
  /// that it leaves. Never blocks; the connection lingers on the loop until the peer has read the
  /// news.
  void Close(const Status& reason, bool aborted) HEDDLE_EXCLUDES(mutex_);
  /// The pair is broken: ends all operations with `status` and drops the connection. What the peer
  /// sent before and has come in whole can still be received.
  void Fail(const Status& status) HEDDLE_EXCLUDES(mutex_);
  /// Whether nothing is left to linger for.
  bool closed() const HEDDLE_EXCLUDES(mutex_);
  /// Drops the connection now.
  void Reset() HEDDLE_EXCLUDES(mutex_);

  /// As ConnectionInfo has them, also once the connection is gone.
  const std::string& transport() const { return stream_.info().transport; }
  const std::string& port() const { return stream_.info().port; }
  bool passes_descriptors() const { return stream_.info().descriptors != nullptr; }
  bool places() const { return stream_.info().placement != nullptr; }
  /// Of DescriptorPassing; 0: unknown, or on another host.
  pid_t peer_process() const { return peer_process_; }
  const ChannelOptions& options() const { return options_; }
  int64_t bytes_sent() const { return stream_.bytes_sent(); }

  /// What is unfinished here, at one moment.
  struct Standing {
    bool open = false;   ///< If not, the rest is empty.
    bool waits = false;  ///< Something that was asked for is to come from the peer, or to be taken.
    std::vector<UnexpectedMessage> unexpected;
  };
  /// For who asks why a wait lasts: `awaited` and `unexpected` say which messages are meant.
  Standing Inspect(const KeyPredicate& awaited, const KeyPredicate& unexpected) const
      HEDDLE_EXCLUDES(mutex_);
  /// Tells the peer of a wait: a frame of kind kWaiting. No effect once not open.
  void Report(const FrameHeader& report) HEDDLE_EXCLUDES(mutex_);

  /// What a driver found here (driver.h).
  struct Look {
    bool in_use = false;  ///< Something is in flight, and it is the driver's to move.
    bool moved = false;
    Connection::Watch sleep_on;
  };
  /// Moves what can be moved now, in the caller's thread, who waits for `awaited`. Losses are left
  /// to the loop. `woken`: what the last look gave to sleep on was ready.
  Look DriveOnce(const Work::State& awaited, bool woken, Time now) HEDDLE_EXCLUDES(mutex_);
  /// Before the driver sleeps. False: there is something to move.
  bool PrepareToSleep() HEDDLE_EXCLUDES(mutex_);
  /// The driver goes. With a lease it is expected back at once, else the loop takes over.
  void EndDrive(bool lease) HEDDLE_EXCLUDES(mutex_);

 private:
  enum class Phase : uint8_t { kOpen, kLingering, kClosed };

  // On the loop.
  void HandleReady(int fd, uint32_t events) override HEDDLE_EXCLUDES(mutex_);
  void HandleTimer(Time time) override HEDDLE_EXCLUDES(mutex_);
  bool WaitsForOtherClass() HEDDLE_REQUIRES(mutex_);
  void NotifyEnd(Status& failure, bool lost, Operations& ended) HEDDLE_EXCLUDES(mutex_);

  // Moving bytes.
  Status Receive(const Work::State* awaited) HEDDLE_REQUIRES(mutex_);
  Status Pump() HEDDLE_REQUIRES(mutex_);
  void PumpFromCaller() HEDDLE_REQUIRES(mutex_);
  /// Whether a caller's thread has it, or will be back at once, and can move all that is to be
  /// moved.
  bool IsDriven() const HEDDLE_REQUIRES(mutex_);
  void Release(bool lease) HEDDLE_REQUIRES(mutex_);
  void Rearm() HEDDLE_REQUIRES(mutex_);

  // Ending.
  /// What went wrong in a caller's thread is the loop's to handle: losses are reported from one
  /// place.
  void LeaveToLoop(const Status& status, Time now) HEDDLE_REQUIRES(mutex_);
  Operations TakeOperations() HEDDLE_REQUIRES(mutex_);
  bool IsInDevice() const HEDDLE_REQUIRES(mutex_);
  void Shut() HEDDLE_REQUIRES(mutex_);

  const ChannelOptions options_;

  mutable Mutex mutex_;
  Phase phase_ HEDDLE_GUARDED_BY(mutex_) = Phase::kOpen;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);  ///< What new operations get once not open.
  Status broken_ HEDDLE_GUARDED_BY(mutex_);  ///< Seen by a caller's thread, for the loop to handle.
  bool write_closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  /// The other traffic class has until then to say why the connection broke.
  Time reason_due_ HEDDLE_GUARDED_BY(mutex_);

  MeteredStream stream_;  ///< Under the lock, but its info and counts of bytes.
  const pid_t peer_process_;
  LoopWatch watch_ HEDDLE_GUARDED_BY(mutex_);
  Placement placement_ HEDDLE_GUARDED_BY(mutex_);
  Sender sender_ HEDDLE_GUARDED_BY(mutex_);
  Receiver receiver_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
