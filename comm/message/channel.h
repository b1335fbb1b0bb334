/// \file
/// All messages of one lane (lane.h) between this worker and one peer of a generation, over
/// whatever connection joins them.
///
/// Small messages travel at once (eager) within a window that the receiver frees as it matches
/// them; a message that is larger, or finds the window full, asks first and waits at the sender
/// until its Recv is posted (rendezvous), so that a receiver's memory is bounded and bulk lands in
/// the posted buffer without a copy. Frames are taken in this order: control, messages that begin,
/// the next chunks of large ones. Messages of one tag match in the order in which they were sent.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/message/driver.h"
#include "comm/message/event_loop.h"
#include "comm/message/frame.h"
#include "comm/message/token_bucket.h"
#include "comm/message/work.h"
#include "comm/transport/lane.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

class Channel;

/// A Send or Recv in flight. Fields belong to its channel's lock.
class Operation : public Work::State {
 public:
  Operation(Duration timeout, std::shared_ptr<Channel> channel)
      : State(timeout),
        channel_(std::move(channel)) {}

  void Cancel(const Status& status) override;
  void Drive(Deadline deadline, Patience patience) override;
  void SetAsleep(bool asleep) override;
  std::string Describe() const override;

  MessageKey key;
  bool is_send = false;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  size_t size = 0;
  size_t offset = 0;  ///< Bytes handed over so far.
  uint64_t id = 0;    ///< Rendezvous number.
  // Placement (channel_placement.cc).
  bool exposed = false;  ///< A Recv whose buffer the peer's device may write into.
  std::shared_ptr<const SharedRegion> region;  ///< Of a Send that is placed: where its bytes lie,
  RemoteMemory remote;                         ///< and where they go.

 private:
  const std::shared_ptr<Channel> channel_;
};

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
  Lane lane = Lane::kBulk;
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
  std::shared_ptr<Driver> driver;       ///< Of all channels of this lane.
  std::shared_ptr<FrameCounts> frames;  ///< The pair's.
  std::shared_ptr<SharedRegions> regions;
};

/// Thread: any.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<EventLoop> loop,
          std::unique_ptr<Connection> connection,
          ChannelOptions options);
  ~Channel();

  /// Starts to watch the connection; called once.
  void Start() HEDDLE_EXCLUDES(mutex_);

  std::shared_ptr<Operation> Send(MessageKey key, std::span<const std::byte> data)
      HEDDLE_EXCLUDES(mutex_);
  std::shared_ptr<Operation> Recv(MessageKey key, std::span<std::byte> data)
      HEDDLE_EXCLUDES(mutex_);

  /// DescriptorPassing's, for a peer on this host. Errors also: kUnimplemented (it passes none).
  Status SendDescriptor(uint64_t id, int fd) HEDDLE_EXCLUDES(mutex_);
  Result<UniqueFd> TakeDescriptor(uint64_t id) HEDDLE_EXCLUDES(mutex_);
  /// Bytes that went through memory shared by a group and not through this channel.
  void CountShared(int64_t sent, int64_t received);

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
  const std::string& transport() const { return info_.transport; }
  const std::string& port() const { return info_.port; }
  bool passes_descriptors() const { return info_.descriptors != nullptr; }
  bool places() const { return info_.placement != nullptr; }
  /// Of DescriptorPassing; 0: unknown, or on another host.
  pid_t peer_process() const { return peer_process_; }
  const ChannelOptions& options() const { return options_; }
  int64_t bytes_sent() const { return bytes_sent_.load(); }

  /// Of a wait in `call` that lasts.
  struct Wait {
    bool for_peer = false;  ///< Something that the peer is to send or take has not shown up.
    /// The peer waits in this call or one before, as it said just now, or it has given up,
    bool peer_waits = false;
    int blamed = -1;   ///< and for this rank, as it believes; -1: it does not say.
    int distance = 0;  ///< Waits from the peer to there.
  };
  /// Whether something of the call is to come from the peer on this lane, or to be taken by it.
  bool WaitsForPeer(const CallNumber& call) const HEDDLE_EXCLUDES(mutex_);
  /// The card (call_card.h) of a message of the peer for another call of this tag that nobody
  /// takes, if it proves that the peer is not in `call`: this lane waits for the peer, or the other
  /// one does (`other_waits`) after its first `other_received` frames, before which the message was
  /// not begun.
  std::optional<uint32_t> FindStray(const CallNumber& call,
                                    bool other_waits,
                                    uint16_t other_received) const HEDDLE_EXCLUDES(mutex_);
  // What members tell each other of their waits; on the urgent lane.
  /// What the peer said of its wait in `call` or one before; for_peer is not set.
  Wait PeerWaitIn(const CallNumber& call) const HEDDLE_EXCLUDES(mutex_);
  /// The card of the call that the peer said it waits in, if that is another in place of `call`.
  std::optional<uint32_t> FindOtherWait(const CallNumber& call) const HEDDLE_EXCLUDES(mutex_);
  /// A wait in `call` lasts: tells the peer, and of call.blamed, if it is for the peer
  /// (`for_peer`), the peer waits, too, or the wait has been given up.
  void TellWaiting(const CallNumber& call, bool for_peer) HEDDLE_EXCLUDES(mutex_);

  void CancelOperation(Operation& operation, const Status& status) HEDDLE_EXCLUDES(mutex_);
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

  /// A message that came before its Recv.
  struct Early {
    uint64_t request = 0;     ///< Rendezvous number; 0: eager.
    uint16_t other_lane = 0;  ///< As in its first frame.
    size_t size = 0;
    Bytes data;
    bool whole = false;
    std::shared_ptr<Operation> taken_by;  ///< A Recv that found it half arrived.
  };
  struct Outgoing {
    FrameHeader header;
    const std::byte* payload = nullptr;
    size_t done = 0;  ///< Of header and payload together.
    std::shared_ptr<Operation> operation;
    Bytes owned;  ///< Payload that is not an operation's.
    /// Of a piece of `operation` that is placed: what is left of it. There is no header then.
    size_t to_place = 0;
  };
  /// A Send whose bytes have all been given to the device.
  struct Placing {
    uint64_t position = 0;  ///< What Connection::placed must reach.
    std::shared_ptr<Operation> operation;
  };
  using Operations = std::vector<std::shared_ptr<Operation>>;

  // channel.cc
  void HandleReady(int fd, uint32_t events) HEDDLE_EXCLUDES(mutex_);
  void HandleTimer(Time time) HEDDLE_EXCLUDES(mutex_);
  /// Whether a driver has it, or will be back at once, and can move all that is to be moved.
  bool IsDriven() const HEDDLE_REQUIRES(mutex_);
  void PumpFromCaller() HEDDLE_REQUIRES(mutex_);
  void Release(bool lease) HEDDLE_REQUIRES(mutex_);
  void Rearm() HEDDLE_REQUIRES(mutex_);
  void RunLater(Time time) HEDDLE_REQUIRES(mutex_);
  Operations TakeOperations() HEDDLE_REQUIRES(mutex_);
  bool WaitsForOtherLane() HEDDLE_REQUIRES(mutex_);
  void TellEnd(Status& failure, bool lost, Operations& ended) HEDDLE_EXCLUDES(mutex_);
  void Unwatch() HEDDLE_REQUIRES(mutex_);
  void Shut() HEDDLE_REQUIRES(mutex_);
  Status PeerStatus(const Status& status) const;
  void Detach(Operation& operation) HEDDLE_REQUIRES(mutex_);

  // channel_send.cc
  Status Pump() HEDDLE_REQUIRES(mutex_);
  bool NextFrame() HEDDLE_REQUIRES(mutex_);
  /// Bytes of the frame in `out_` that the connection took.
  Result<size_t> WriteSome() HEDDLE_REQUIRES(mutex_);
  /// Before a frame's first byte.
  void CountFrame() HEDDLE_REQUIRES(mutex_);
  bool StartMessage() HEDDLE_REQUIRES(mutex_);
  bool StartChunk() HEDDLE_REQUIRES(mutex_);
  void EndOutgoing() HEDDLE_REQUIRES(mutex_);
  void QueueControl(FrameKind kind, uint64_t id, uint64_t total, std::string_view text = {})
      HEDDLE_REQUIRES(mutex_);
  bool HasOutput() const HEDDLE_REQUIRES(mutex_);
  /// Tells a bucket of the emulated link whether traffic of this channel waits for it.
  void SetWaiting(bool& waits, bool now_waits, TokenBucket& bucket) const;

  // channel_receive.cc
  /// What is there, until `awaited` is done: its caller uses what came while it is in the cache.
  Status Receive(const Work::State* awaited = nullptr) HEDDLE_REQUIRES(mutex_);
  Result<bool> FillStage() HEDDLE_REQUIRES(mutex_);
  Result<bool> ReadPayload() HEDDLE_REQUIRES(mutex_);
  Result<size_t> ReadSome(std::span<std::byte> buffer) HEDDLE_REQUIRES(mutex_);
  Status BeginFrame() HEDDLE_REQUIRES(mutex_);
  Status BeginEager() HEDDLE_REQUIRES(mutex_);
  Status BeginRequest() HEDDLE_REQUIRES(mutex_);
  Status BeginData() HEDDLE_REQUIRES(mutex_);
  Status HandleGrant(bool granted) HEDDLE_REQUIRES(mutex_);
  Status EndFrame() HEDDLE_REQUIRES(mutex_);
  void Grant(uint64_t id, std::shared_ptr<Operation> operation) HEDDLE_REQUIRES(mutex_);
  void ReturnCredit(size_t bytes) HEDDLE_REQUIRES(mutex_);
  std::shared_ptr<Operation> TakePosted(const MessageKey& key) HEDDLE_REQUIRES(mutex_);
  // channel_placement.cc
  /// Lets the peer place a message that it is granted, if it can be.
  void Expose(Operation& operation, FrameHeader& grant) HEDDLE_REQUIRES(mutex_);
  /// Whether a Send's end may be placed; its receiver's is not known yet.
  bool MayBePlaced(const Operation& operation) const HEDDLE_REQUIRES(mutex_);
  /// A granted message will be placed, if it can be.
  void PreparePlacing(Operation& operation, const FrameHeader& grant) HEDDLE_REQUIRES(mutex_);
  /// Bytes of the piece in `out_` that the device took.
  Result<size_t> PlaceSome() HEDDLE_REQUIRES(mutex_);
  void EndPiece() HEDDLE_REQUIRES(mutex_);
  /// Ends the Sends whose bytes have arrived.
  void EndPlaced() HEDDLE_REQUIRES(mutex_);
  Status HandlePlaced() HEDDLE_REQUIRES(mutex_);
  /// Whether a device may be about to read or write what an operation was given.
  static bool IsInDevice(const Operation& operation);
  bool IsPlacing() const HEDDLE_REQUIRES(mutex_);
  // channel_diagnosis.cc
  bool WaitsFor(const CallNumber& call) const HEDDLE_REQUIRES(mutex_);
  /// A call that the peer said it waits in.
  struct PeerWait {
    CallNumber call;
    Time heard;
  };
  /// An own one that the peer was told of.
  struct Told {
    CallNumber call;
    Time at;
  };
  const PeerWait* PeerWaitOf(const CallNumber& call) const HEDDLE_REQUIRES(mutex_);
  void NoteWaiting(const FrameHeader& frame) HEDDLE_REQUIRES(mutex_);
  Status MismatchError(size_t sent, size_t posted) const;

  const std::shared_ptr<EventLoop> loop_;
  const ChannelOptions options_;
  const ConnectionInfo info_;  ///< What it points to lives as long as `connection_`.
  const pid_t peer_process_;
  const uint32_t generation_;
  std::atomic<int64_t> bytes_sent_ = 0;

  mutable Mutex mutex_;
  std::unique_ptr<Connection> connection_ HEDDLE_GUARDED_BY(mutex_);
  Phase phase_ HEDDLE_GUARDED_BY(mutex_) = Phase::kOpen;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);  ///< What new operations get once not open.
  Status broken_ HEDDLE_GUARDED_BY(mutex_);  ///< Seen by a caller's thread, for the loop to handle.
  struct Registered {
    uint64_t watch = 0;
    int fd = -1;
    uint32_t events = 0;
  };
  std::array<Registered, 2> watches_ HEDDLE_GUARDED_BY(mutex_);
  bool started_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool peer_hung_up_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool write_closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  Time run_at_ HEDDLE_GUARDED_BY(mutex_) = Time::max();  ///< Earliest timer armed.
  bool driven_ HEDDLE_GUARDED_BY(mutex_) = false;        ///< A caller's thread moves the messages,
  Time leased_until_ HEDDLE_GUARDED_BY(mutex_);          ///< or has just done so; Time(): no.
  uint64_t moved_ HEDDLE_GUARDED_BY(mutex_) = 0;         ///< Bytes, both ways.
  Time told_by_ HEDDLE_GUARDED_BY(mutex_);  ///< The other lane has until then to say why it ended.

  // Sending.
  std::deque<Outgoing> control_ HEDDLE_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Operation>> messages_ HEDDLE_GUARDED_BY(mutex_);  ///< Not begun.
  std::deque<std::shared_ptr<Operation>> granted_ HEDDLE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> asked_ HEDDLE_GUARDED_BY(mutex_);
  std::unordered_set<uint64_t> given_up_
      HEDDLE_GUARDED_BY(mutex_);  ///< Announced; the grant is still to come.
  uint64_t next_id_ HEDDLE_GUARDED_BY(mutex_) = 1;
  size_t requests_ HEDDLE_GUARDED_BY(mutex_) = 0;
  size_t credit_ HEDDLE_GUARDED_BY(mutex_) = kEagerWindow;
  bool sending_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< `out_` holds a frame.
  Outgoing out_ HEDDLE_GUARDED_BY(mutex_);
  bool out_limited_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< The emulated link holds output back.
  uint64_t given_ HEDDLE_GUARDED_BY(mutex_) = 0;        ///< Bytes given to the device to place.
  std::deque<Placing> placing_ HEDDLE_GUARDED_BY(mutex_);

  std::deque<PeerWait> peer_waits_ HEDDLE_GUARDED_BY(mutex_);  ///< The latest last.
  /// Of the last moments; one of each tag and group.
  std::vector<Told> told_waits_ HEDDLE_GUARDED_BY(mutex_);

  // Receiving.
  std::vector<std::byte> stage_ HEDDLE_GUARDED_BY(mutex_);
  size_t stage_begin_ HEDDLE_GUARDED_BY(mutex_) = 0;
  size_t stage_end_ HEDDLE_GUARDED_BY(mutex_) = 0;
  FrameHeader in_ HEDDLE_GUARDED_BY(mutex_);
  bool receiving_ HEDDLE_GUARDED_BY(mutex_) =
      false;  ///< `in_` holds a frame whose payload is incomplete.
  size_t in_left_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::byte* in_target_ HEDDLE_GUARDED_BY(mutex_) = nullptr;  ///< Null: discard.
  std::shared_ptr<Operation> in_operation_ HEDDLE_GUARDED_BY(mutex_);
  std::shared_ptr<Early> in_early_ HEDDLE_GUARDED_BY(mutex_);
  Bytes in_text_ HEDDLE_GUARDED_BY(mutex_);
  uint64_t last_announced_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< The newest request's number.
  bool out_waits_ HEDDLE_GUARDED_BY(mutex_) = false;       ///< As told to the bucket.
  bool in_waits_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool in_limited_ HEDDLE_GUARDED_BY(mutex_) = false;
  /// The connection gave less than was asked for: there is no more at this moment.
  bool in_drained_ HEDDLE_GUARDED_BY(mutex_) = false;
  size_t eager_held_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Window the peer has used and not got back.
  size_t eager_freed_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Of it, free but not yet told.
  size_t requests_held_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::unordered_map<MessageKey, std::deque<std::shared_ptr<Operation>>, MessageKeyHash> posted_
      HEDDLE_GUARDED_BY(mutex_);
  std::unordered_map<MessageKey, std::deque<std::shared_ptr<Early>>, MessageKeyHash> early_
      HEDDLE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> expected_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
