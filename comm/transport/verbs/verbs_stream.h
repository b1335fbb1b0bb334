/// \file
/// The streams of a connection over RDMA. Each end has a ring of registered memory that the other
/// end writes into (one-sided). Writes are announced by immediates or, on devices without them, by
/// small messages; the reader returns the bytes that it has consumed as credit (credit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include "comm/transport/verbs/credit.h"
#include "comm/transport/verbs/verbs_device.h"
#include "comm/transport/verbs/verbs_queue_pair.h"

namespace heddle::comm {

/// The registered memory of the streams.
class VerbsBuffers {
 public:
  explicit VerbsBuffers(size_t ring_bytes)
      : ring_bytes_(ring_bytes),
        bytes_(2 * ring_bytes +
               (StreamCredit::kReceives + SendRequests::kDepth) * sizeof(ControlMessage)) {}
  ~VerbsBuffers();
  VerbsBuffers(const VerbsBuffers&) = delete;
  VerbsBuffers& operator=(const VerbsBuffers&) = delete;

  /// Allocates and registers the memory. Errors: kResourceExhausted, which names the limit that is
  /// too low and how to raise it.
  Status Allocate(ibv_pd* domain);

  size_t ring_bytes() const { return ring_bytes_; }
  /// The ring into which the peer writes, with the remote key ring_key().
  std::byte* ring() const { return memory_; }
  uint32_t ring_key() const { return ring_region_->rkey; }
  /// Data to write into the peer's ring, at the same offsets. This memory and the control messages
  /// are registered with the local key own_key().
  std::byte* staging() const { return memory_ + ring_bytes_; }
  uint32_t own_key() const { return own_region_->lkey; }
  /// The received control messages, one for each posted receive.
  std::byte* received() const { return staging() + ring_bytes_; }
  /// The control message of a send request.
  std::byte* sent(uint64_t request) const {
    return received() +
           (StreamCredit::kReceives + request % SendRequests::kDepth) * sizeof(ControlMessage);
  }

 private:
  const size_t ring_bytes_;
  const size_t bytes_;  ///< Size of the whole memory.
  std::byte* memory_ = nullptr;
  VerbsHandle<ibv_mr> ring_region_;
  VerbsHandle<ibv_mr> own_region_;
};

/// The streams of a connection over RDMA. Thread: one caller at a time.
class VerbsStream {
 public:
  VerbsStream(std::shared_ptr<VerbsDevice> device, TrafficClass traffic_class)
      : buffers_(RingBytes(traffic_class)),
        queue_pair_(std::move(device)),
        credit_(buffers_.ring_bytes()),
        requests_(buffers_.ring_bytes()) {}

  // Setup; the functions are called in this order.
  /// Registers memory and creates the objects that a queue pair needs. Errors: kResourceExhausted,
  /// which names the limit that is too low and how to raise it; kUnavailable.
  Status Allocate();
  /// Creates the queue pair (VerbsQueuePair::Make); the arguments are for iWARP only.
  Status MakeQueuePair(VerbsHandle<rdma_event_channel> manager = {},
                       VerbsHandle<rdma_cm_id> id = {});
  VerbsHello Hello() const;
  /// Stores the peer's ring and limits and, except for iWARP, connects the queue pairs. `peer` has
  /// been validated.
  Status Join(const VerbsHello& peer);
  /// Sends a control message with `flags` (ControlMessage). A probe has no effect but to show that
  /// the network passes RDMA.
  Status SendControl(uint32_t flags);
  /// Whether the peer's probe has arrived. Errors: failures of the queue pair.
  Result<bool> Probed();

  VerbsQueuePair& queue_pair() { return queue_pair_; }
  SendRequests& requests() { return requests_; }

  /// Implements Connection::Write.
  Result<size_t> Write(std::span<const iovec> parts);
  /// Implements Connection::Read.
  Result<size_t> Read(std::span<std::byte> buffer);
  /// Whether there are bytes to read (readable), and whether bytes can be written (writable).
  bool readable() const { return credit_.readable() > 0; }
  bool writable() const;
  /// Ends the outgoing stream and notifies the peer.
  void End();
  /// Handles the completions, and returns credit that is due.
  Status Poll();
  /// Requests an event for the next completion, then polls, so that no completion is missed.
  Status Await();

  /// Records that the peer is gone. Bytes that it wrote before can still be read.
  void HangUp() { hung_up_ = true; }
  /// Checks that bytes can still be sent. Errors: kUnavailable.
  Status CheckSending() const;
  /// Whether the peer has ended its stream or is gone, or the queue pair has failed.
  bool over() const { return ended_ || hung_up_ || !queue_pair_.failure().ok(); }

 private:
  Result<size_t> Put(std::span<const iovec> parts);
  void AddPiece(VerbsChain& chain, size_t place, size_t bytes);
  void AddControl(VerbsChain& chain, uint32_t arrived, uint32_t flags);
  Status SendDue();
  Status Received(const ibv_wc& completion);

  VerbsBuffers buffers_;
  VerbsQueuePair queue_pair_;  ///< Declared after buffers_: destroyed before its memory.
  StreamCredit credit_;
  SendRequests requests_;
  uint64_t peer_ring_ = 0;
  uint32_t peer_key_ = 0;
  bool end_due_ = false;
  bool probed_ = false;
  bool ended_ = false;
  bool hung_up_ = false;
};

}  // namespace heddle::comm
