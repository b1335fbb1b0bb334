/// \file
/// A queue pair with its completions, its way from being made to being joined to the peer's, and
/// what is heard of it beside them.
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

/// New requests, handed to the device in one call. They point to each other: neither copied nor
/// moved.
class VerbsChain {
 public:
  explicit VerbsChain(SendRequests& requests) : numbers_(requests) {}
  VerbsChain(const VerbsChain&) = delete;
  VerbsChain& operator=(const VerbsChain&) = delete;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ + 2 > requests_.size(); }
  ibv_send_wr* first() { return requests_.data(); }
  void Clear() { count_ = 0; }
  /// Adds one over `bytes` of memory registered as `key`; `carried` and `last`: SendRequests::Add.
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

/// Thread: one caller at a time.
class VerbsQueuePair {
 public:
  /// Completions that are polled, or receives that are posted, at a time.
  static constexpr int kBatch = 32;
  /// Set in the number of a receive's request; the rest is its slot.
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 63;

  explicit VerbsQueuePair(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}
  ~VerbsQueuePair();

  /// Makes the completion queue. Errors: kResourceExhausted, kUnavailable.
  Status Allocate();
  /// InfiniBand and RoCE: a queue pair that can take part in Join. iWARP: on an identifier that
  /// knows its device. Errors: kUnavailable.
  Status Make(VerbsHandle<rdma_event_channel> manager, VerbsHandle<rdma_cm_id> id);
  /// Its part of what the peer is told.
  VerbsHello Hello() const;
  /// InfiniBand and RoCE: ready to receive and to send. `peer` has been checked.
  Status Join(const VerbsHello& peer);

  /// What befell it first, and stays.
  const Status& failure() const { return failure_; }
  /// Notes what befell it. Returns `failure`.
  Status Fail(const Status& status);
  /// Nothing goes out or comes in any more.
  void Stop(const Status& why);

  /// Empties `chain`. Errors: `failure`.
  Status Post(VerbsChain& chain);
  /// `memory`, registered as `key`, has room for a control message for each slot. Errors:
  /// `failure`.
  Status PostReceives(std::span<const uint32_t> slots, std::byte* memory, uint32_t key);
  bool sends_inline() const { return sends_inline_; }
  /// Largest write: the reader begins on a piece while the next is under way.
  size_t piece_bytes() const {
    return std::min<size_t>(size_t{64} << 10, device_->max_message_bytes());
  }

  int completion_fd() const { return channel_->fd; }
  /// A completion's event has come.
  void TakeEvent();
  /// The next completion makes an event.
  void Arm();
  /// The completions that have come. Errors: `failure`.
  Result<std::span<const ibv_wc>> Poll(std::array<ibv_wc, kBatch>& batch);
  Status CompletionError(const ibv_wc& completion) const;

  const std::shared_ptr<VerbsDevice>& device() const { return device_; }
  /// Watches `socket`, the handshake's, and all beside completions. Errors: kResourceExhausted
  /// (descriptors).
  Status Watch(int socket);
  /// Becomes ready to read when TakeNews should be called; always the same.
  int watched_fd() const { return watched_.get(); }
  /// Takes in what was heard; fails if the device has news of this queue pair. Returns whether the
  /// peer has gone.
  bool TakeNews();

 private:
  /// What the epoll of seldom events tells apart.
  enum Watched : uint64_t { kSocket, kDevice, kManager };

  const std::shared_ptr<VerbsDevice> device_;
  UniqueFd news_;     ///< Eventfd: the device has failed this queue pair.
  UniqueFd watched_;  ///< Epoll of what seldom happens: the socket, the device, iWARP's events.
  VerbsHandle<ibv_comp_channel> channel_;
  VerbsHandle<ibv_cq> completions_;
  VerbsHandle<rdma_event_channel> manager_;  ///< iWARP's.
  VerbsHandle<rdma_cm_id> id_;
  ibv_qp* queue_pair_ = nullptr;
  bool sends_inline_ = false;
  uint32_t first_packet_ = 0;
  bool armed_ = false;
  unsigned int unacknowledged_ = 0;  ///< Completion events.
  Status failure_;
};

}  // namespace heddle::comm
