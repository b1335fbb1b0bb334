/// \file
/// A connection over an RDMA queue pair: a ring of registered memory at each end that the other end
/// writes into (one-sided), announced by immediates or, where there are none, by small messages;
/// the reader returns what it has consumed as credit. The handshake's socket stays open beside it:
/// an idle queue pair learns nothing of its peer's death, and a peer that is stopped still takes
/// writes.
///
/// Credit. A writer never has more bytes under way than the ring holds (RingBytes), nor more
/// notifications than the reader has receives posted, so that a receiver is never "not ready". The
/// last kReserve receives are kept for messages that return credit. Credit is due when a quarter of
/// the ring or of the receives is owed, so a full exchange of one ring costs four small messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/system/unique_fd.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"
#include "comm/transport/verbs/verbs_device.h"

struct ibv_comp_channel;
struct ibv_mr;
struct ibv_qp;
struct ibv_send_wr;
struct ibv_wc;

namespace heddle::comm {

/// What one end tells the other on the authenticated socket before the queue pairs are joined.
/// Checked on receipt; little endian.
struct VerbsHello {
  static constexpr uint32_t kMagic = 0x31564448;  // "HDV1"
  static constexpr uint8_t kHostMemory = 0;

  uint32_t magic = kMagic;
  RdmaKind kind = RdmaKind::kRoce;
  uint8_t memory = kHostMemory;  ///< Where the ring lies.
  uint8_t mtu = 0;               ///< Active, in the encoding of ibv_mtu.
  uint8_t zero = 0;
  RdmaGid gid{};
  uint32_t queue_pair = 0;
  uint32_t first_packet = 0;  ///< Random, so that a late packet of an old pair fits nowhere.
  uint64_t ring_address = 0;
  uint32_t ring_key = 0;
  uint32_t ring_bytes = 0;
  uint32_t receives = 0;  ///< Posted at all times.
  uint16_t lid = 0;
  uint16_t cm_port = 0;             ///< iWARP: where the acceptor listens.
  Digest token{};                   ///< iWARP: proves there that the dialler read this.
  std::array<char, 128> refusal{};  ///< Why there will be no connection; empty: there will.
};
static_assert(sizeof(VerbsHello) == 216);

class VerbsChain;

class VerbsConnection final : public Connection, public DirectPlacement {
 public:
  /// Bytes of the ring, which are also the most that are under way, and the most that are placed at
  /// a time beside them: a NIC without flow control of
  /// its own must not be flooded (with 16 MiB under way between two software devices a third of the
  /// rate of 1 MiB is left), and 1 MiB covers 200 Gbit/s at 40 us. Urgent messages are small as a
  /// rule.
  static constexpr size_t RingBytes(TrafficClass traffic_class) {
    return size_t{traffic_class == TrafficClass::kBulk ? 1024U : 256U} << 10;
  }

  /// Registers memory and makes what a queue pair needs. Errors: kResourceExhausted names the limit
  /// that is too low and how to raise it; kUnavailable.
  static Result<std::unique_ptr<VerbsConnection>> Create(std::shared_ptr<VerbsDevice> device,
                                                         TrafficClass traffic_class);
  ~VerbsConnection() override;

  // Setting up; in this order.
  /// InfiniBand and RoCE: a queue pair that can take part in Join. Errors: kUnavailable.
  Status MakeQueuePair();
  /// iWARP: on an identifier that knows its device; this connection owns it from now on.
  Status MakeQueuePair(rdma_event_channel* channel, rdma_cm_id* id);
  VerbsHello Hello() const;
  /// InfiniBand and RoCE: ready to receive and to send. `peer` has been checked.
  Status Join(const VerbsHello& peer);
  /// Takes over the peer's ring and limits. `peer` has been checked.
  void SetPeer(const VerbsHello& peer);
  /// Sends a message that only shows that the network lets it through.
  Status SendProbe() { return SendControl(kProbe); }
  /// Whether the peer's has come. Errors: what befell the queue pair.
  Result<bool> Probed();
  /// Takes over the handshake's socket and starts to watch it and the device. Errors:
  /// kResourceExhausted (descriptors).
  Status Start(UniqueFd socket);

  int completion_fd() const;
  const VerbsDevice& device() const { return *device_; }

  // Connection.
  ConnectionInfo info() override {
    return {.transport = "verbs", .port = device_->port().name(), .placement = this};
  }
  Result<size_t> Write(std::span<const iovec> parts) override;
  Result<size_t> Read(std::span<std::byte> buffer) override;
  std::array<Watch, 2> Watches(bool want_read, bool want_write) override;
  Watch SleepOn(bool want_write) const override;
  void OnReady(int fd, uint32_t events) override;
  bool PrepareToWait(bool want_read, bool want_write) override;
  void Close(Ending how) override;

  // DirectPlacement.
  Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& region,
                              std::span<std::byte> bytes) override;
  Status Prepare(const std::shared_ptr<const SharedRegion>& region) override;
  Result<size_t> Place(const std::shared_ptr<const SharedRegion>& region,
                       std::span<const std::byte> bytes,
                       const RemoteMemory& target) override;
  uint64_t placed() override { return reported_placed_ = placed_; }
  void Withdraw() override;

 private:
  /// A completion's event has come.
  void TakeCompletionEvent();
  /// A message of the control kind, beside the stream. Positions only grow.
  struct ControlMessage {
    uint64_t consumed = 0;  ///< Bytes of the receiver's stream that the sender has read.
    uint64_t reposted = 0;  ///< Receives that the sender has used and posted again.
    uint32_t arrived = 0;   ///< Bytes that the sender wrote into the ring just before.
    uint32_t flags = 0;
  };
  static_assert(sizeof(ControlMessage) == 24);
  static constexpr uint32_t kProbe = 1;
  static constexpr uint32_t kEnd = 2;  ///< The stream ends here.

  /// Receives posted at all times. One serves a piece of the stream or a control message.
  static constexpr uint32_t kReceives = 256;
  /// Of the peer's receives, those that only control messages may use. Those are due once a quarter
  /// of the ring or of the receives, so that fewer than eight can be under way when the stream's
  /// share is used up; without them both ends could wait for the other's credit.
  static constexpr uint32_t kReserve = 8;
  /// Send requests that may be under way, completed or not; and of them those kept for control.
  static constexpr uint32_t kSendDepth = 128;
  /// Every completion could come at once: the completion queue holds them all.
  static constexpr uint32_t kCompletions = kReceives + kSendDepth;
  /// A request that reports its completion frees all before it. One in sixteen does, or one in an
  /// eighth of the ring.
  static constexpr uint64_t kSignalEvery = 16;
  static constexpr size_t kSignalPart = 8;
  /// Largest write: the reader begins on a piece while the next is under way.
  static constexpr size_t kPieceBytes = size_t{64} << 10;

  /// What the epoll of seldom events tells apart.
  enum Watched : uint64_t { kSocket, kDevice, kManager };

  /// A shared region as the device knows it.
  class Registration;

  VerbsConnection(std::shared_ptr<VerbsDevice> device, TrafficClass traffic_class)
      : device_(std::move(device)),
        traffic_class_(traffic_class),
        ring_bytes_(RingBytes(traffic_class)) {}

  Status Allocate();
  /// Nothing goes out or comes in any more.
  void StopQueuePair();
  Status PostReceives(std::span<const uint32_t> slots);
  Status Fail(const Status& status);
  Status CompletionError(const ibv_wc& completion) const;
  /// Takes in what has completed, and returns credit that is due.
  Status Poll();
  void Completed(uint64_t request);
  Status Received(const ibv_wc& completion);
  Result<size_t> Put(std::span<const iovec> parts);
  Status Post(VerbsChain& chain);
  Status Apply(const ControlMessage& message);
  Status Arrived(uint64_t bytes);
  Status SendDue();
  Status SendControl(uint32_t flags);
  void AddControl(VerbsChain& chain, uint32_t arrived, uint32_t flags);
  void AddPiece(VerbsChain& chain, size_t place, size_t bytes);
  /// Gives a request its number and decides whether it reports its completion; the `last` of a
  /// message that somebody waits for does.
  void Number(ibv_send_wr& request, bool last = false);
  size_t Room() const;
  bool MaySend(uint32_t requests, bool control) const;
  bool CreditIsDue() const;
  // verbs_placement.cc
  Result<std::shared_ptr<Registration>> Register(const std::shared_ptr<const SharedRegion>& region);
  Result<size_t> PutPlaced(const Registration& registration,
                           std::span<const std::byte> bytes,
                           const RemoteMemory& target);
  size_t PlaceRoom() const;
  void EndRegistrations();

  const std::shared_ptr<VerbsDevice> device_;
  const TrafficClass traffic_class_;
  const size_t ring_bytes_;
  UniqueFd socket_;   ///< Of the handshake.
  UniqueFd news_;     ///< Eventfd: the device has failed this queue pair.
  UniqueFd watched_;  ///< Epoll of what seldom happens: the socket, the device, iWARP's events.
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::byte* ring_ = nullptr;      ///< The peer writes here.
  std::byte* staging_ = nullptr;   ///< What the peer's ring gets, at the same places.
  std::byte* received_ = nullptr;  ///< Control messages, one a receive.
  std::byte* sent_ = nullptr;      ///< Control messages, one a send request.
  ibv_mr* ring_region_ = nullptr;
  ibv_mr* own_region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  rdma_event_channel* cm_channel_ = nullptr;
  rdma_cm_id* cm_id_ = nullptr;
  bool inline_control_ = false;
  uint32_t first_packet_ = 0;
  size_t piece_bytes_ = 0;

  uint64_t peer_ring_ = 0;
  uint32_t peer_key_ = 0;
  uint64_t peer_receives_ = 0;
  bool immediate_ = false;

  // Sending. Positions are in bytes of the stream, requests and messages are counted from 0.
  uint64_t written_ = 0;
  uint64_t confirmed_ = 0;      ///< Position up to which the staging memory is no longer needed.
  uint64_t peer_consumed_ = 0;  ///< Position up to which the peer's ring is free again.
  uint64_t requests_ = 0;
  uint64_t completed_ = 0;  ///< Requests.
  uint64_t signalled_ = 0;  ///< Requests, up to and with the last that will report its completion.
  uint64_t signalled_position_ = 0;
  struct Positions {
    uint64_t written = 0;
    uint64_t given = 0;
  };
  std::array<Positions, kSendDepth> positions_{};  ///< After each request.
  uint64_t messages_ = 0;                          ///< Receives used at the peer.
  uint64_t peer_reposted_ = 0;
  bool end_due_ = false;

  // Placing. Positions count the bytes given to Place.
  std::map<uint64_t, std::shared_ptr<Registration>> registrations_;  ///< By the region's number.
  uint64_t given_ = 0;
  uint64_t placed_ = 0;           ///< Of them, those that have arrived, as far as is known,
  uint64_t reported_placed_ = 0;  ///< and as the channel knows it.
  bool place_full_ = false;       ///< What found no room last is to be placed, not written.

  // Receiving.
  uint64_t arrived_ = 0;
  uint64_t consumed_ = 0;
  uint64_t announced_consumed_ = 0;
  uint64_t reposted_ = 0;
  uint64_t announced_reposted_ = 0;
  bool probed_ = false;
  bool ended_ = false;
  bool hung_up_ = false;

  bool armed_ = false;
  unsigned int unacknowledged_ = 0;  ///< Completion events.
  Status failure_;
};

}  // namespace heddle::comm
