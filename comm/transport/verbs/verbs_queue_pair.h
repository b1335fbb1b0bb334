/// \file
/// A queue pair: its creation and connection to the peer's queue pair, its requests and
/// completions, and the events that report its failure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <infiniband/verbs.h>

#include "base/system/unique_fd.h"
#include "comm/transport/handshake.h"
#include "comm/transport/verbs/credit.h"
#include "comm/transport/verbs/verbs_device.h"

namespace heddle::comm {

/// The parameters that one end sends to the other over the authenticated socket before the queue
/// pairs are connected. Validated on receipt; little endian.
struct VerbsHello {
  static constexpr uint32_t kMagic = 0x31564448;  // "HDV1"
  static constexpr uint8_t kHostMemory = 0;

  uint32_t magic = kMagic;
  RdmaKind kind = RdmaKind::kRoce;
  uint8_t memory = kHostMemory;  ///< Kind of memory of the ring.
  uint8_t mtu = 0;               ///< Active MTU, in the encoding of ibv_mtu.
  uint8_t zero = 0;
  RdmaGid gid{};
  uint32_t queue_pair = 0;
  uint32_t first_packet = 0;  ///< Random, so that late packets of an old queue pair do not match.
  uint64_t ring_address = 0;
  uint32_t ring_key = 0;
  uint32_t ring_bytes = 0;
  uint32_t receives = 0;  ///< Number of receives posted at all times.
  uint16_t lid = 0;
  uint16_t cm_port = 0;             ///< iWARP: port at which the acceptor listens.
  Digest token{};                   ///< iWARP: the dialler presents it to the acceptor's port.
  std::array<char, 128> refusal{};  ///< Reason for a refusal; empty: not refused.
};
static_assert(sizeof(VerbsHello) == 216);

/// A chain of new requests that are posted to the device in one call. They point to each other, so
/// that the chain can be neither copied nor moved.
class VerbsChain {
 public:
  explicit VerbsChain(SendRequests& requests) : numbers_(requests) {}
  VerbsChain(const VerbsChain&) = delete;
  VerbsChain& operator=(const VerbsChain&) = delete;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ + 2 > requests_.size(); }
  ibv_send_wr* first() { return requests_.data(); }
  void Clear() { count_ = 0; }
  /// Adds a request for `bytes` bytes of memory registered as `key`. `carried` and `last` are the
  /// arguments of SendRequests::Add.
  ibv_send_wr& Add(const void* data,
                   size_t bytes,
                   uint32_t key,
                   SendRequests::Bytes carried,
                   bool last = false) {
    ibv_sge& part = parts_[count_];
    part.addr = reinterpret_cast<uint64_t>(data);
    part.length = static_cast<uint32_t>(bytes);
    part.lkey = key;
    ibv_send_wr& request = requests_[count_];
    request = {};
    request.wr_id = numbers_.next();
    request.sg_list = &part;
    request.num_sge = 1;
    request.send_flags = numbers_.Add(carried, last) ? IBV_SEND_SIGNALED : 0;
    if (count_ > 0) {
      requests_[count_ - 1].next = &request;
    }
    ++count_;
    return request;
  }

 private:
  SendRequests& numbers_;
  std::array<ibv_send_wr, 32> requests_;
  std::array<ibv_sge, 32> parts_;
  size_t count_ = 0;
};

/// A queue pair and its completion queue. Thread: one caller at a time.
class VerbsQueuePair {
 public:
  /// The most completions polled, or receives posted, in one call.
  static constexpr int kBatch = 32;
  /// Bit that is set in the ID of a receive request; the other bits are its slot.
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 63;

  explicit VerbsQueuePair(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}
  ~VerbsQueuePair();

  /// Creates the completion queue. Errors: kResourceExhausted, kUnavailable.
  Status Allocate();
  /// Creates the queue pair. iWARP: on `id`, which is bound to the device; for other kinds both
  /// arguments are null. Errors: kUnavailable.
  Status Make(VerbsHandle<rdma_event_channel> manager, VerbsHandle<rdma_cm_id> id);
  /// This queue pair's fields of the hello to the peer.
  VerbsHello Hello() const;
  /// InfiniBand and RoCE: brings the queue pair to the states ready to receive and ready to send.
  /// `peer` has been validated.
  Status Join(const VerbsHello& peer);

  /// The first failure of the queue pair; ok: none. It is permanent.
  const Status& failure() const { return failure_; }
  /// Records a failure. Returns failure().
  Status Fail(const Status& status);
  /// Stops all sends and receives; `why` becomes the failure.
  void Stop(const Status& why);

  /// Posts and empties `chain`. Errors: failure().
  Status Post(VerbsChain& chain);
  /// Posts receives for `slots`. `memory`, registered as `key`, has room for a control message for
  /// each slot. Errors: failure().
  Status PostReceives(std::span<const uint32_t> slots, std::byte* memory, uint32_t key);
  bool sends_inline() const { return sends_inline_; }
  /// Largest write. The reader can process a piece while the next is in flight.
  size_t piece_bytes() const {
    return std::min<size_t>(size_t{64} << 10, device_->max_message_bytes());
  }

  int completion_fd() const { return channel_->fd; }
  /// Takes the event of a completion.
  void TakeEvent();
  /// Requests an event for the next completion.
  void Arm();
  /// Polls the completions into `batch`. Errors: failure().
  Result<std::span<const ibv_wc>> Poll(std::array<ibv_wc, kBatch>& batch);
  Status CompletionError(const ibv_wc& completion) const;

  const std::shared_ptr<VerbsDevice>& device() const { return device_; }
  /// Watches `socket`, the handshake's socket, and all events except completions. Errors:
  /// kResourceExhausted (descriptors).
  Status Watch(int socket);
  /// Descriptor that is ready to read when TakeNews should be called; it never changes.
  int watched_fd() const { return watched_.get(); }
  /// Handles the pending events. A failure of the device becomes failure(). Returns whether the
  /// peer has closed the socket.
  bool TakeNews();

 private:
  /// The sources of rare events in watched_.
  enum Watched : uint64_t { kSocket, kDevice, kManager };

  const std::shared_ptr<VerbsDevice> device_;
  UniqueFd news_;     ///< Eventfd by which the device reports a failure of this queue pair.
  UniqueFd watched_;  ///< Epoll of rare events: the socket, the device, iWARP's events.
  VerbsHandle<ibv_comp_channel> channel_;
  VerbsHandle<ibv_cq> completions_;
  VerbsHandle<rdma_event_channel> manager_;  ///< iWARP's event channel.
  VerbsHandle<rdma_cm_id> id_;
  ibv_qp* queue_pair_ = nullptr;
  bool sends_inline_ = false;
  uint32_t first_packet_ = 0;
  bool armed_ = false;
  unsigned int unacknowledged_ = 0;  ///< Completion events not acknowledged yet.
  Status failure_;
};

}  // namespace heddle::comm
