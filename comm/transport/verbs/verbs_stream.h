/// \file
/// The streams of a connection over RDMA: a ring of registered memory at each end that the other
/// end writes into (one-sided), announced by immediates or, where there are none, by small
/// messages; the reader returns what it has consumed as credit (credit.h).
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

  /// Errors: kResourceExhausted names the limit that is too low and how to raise it.
  Status Allocate(ibv_pd* domain);

  size_t ring_bytes() const { return ring_bytes_; }
  /// The peer writes here, with `ring_key`.
  std::byte* ring() const { return memory_; }
  uint32_t ring_key() const { return ring_region_->rkey; }
  /// What the peer's ring gets, at the same places. It and what follows are registered as
  /// `own_key`.
  std::byte* staging() const { return memory_ + ring_bytes_; }
  uint32_t own_key() const { return own_region_->lkey; }
  /// Control messages: one a receive,
  std::byte* received() const { return staging() + ring_bytes_; }
  /// and one a send request.
  std::byte* sent(uint64_t request) const {
    return received() +
           (StreamCredit::kReceives + request % SendRequests::kDepth) * sizeof(ControlMessage);
  }

 private:
  const size_t ring_bytes_;
  const size_t bytes_;  ///< Of all.
  std::byte* memory_ = nullptr;
  VerbsHandle<ibv_mr> ring_region_;
  VerbsHandle<ibv_mr> own_region_;
};

/// Thread: one caller at a time.
class VerbsStream {
 public:
  VerbsStream(std::shared_ptr<VerbsDevice> device, TrafficClass traffic_class)
      : buffers_(RingBytes(traffic_class)),
        queue_pair_(std::move(device)),
        credit_(buffers_.ring_bytes()),
        requests_(buffers_.ring_bytes()) {}

  // Setting up; in this order.
  /// Registers memory and makes what a queue pair needs. Errors: kResourceExhausted names the limit
  /// that is too low and how to raise it; kUnavailable.
  Status Allocate();
  /// Makes the queue pair; arguments for iWARP alone: VerbsQueuePair::Make.
  Status MakeQueuePair(VerbsHandle<rdma_event_channel> manager = {},
                       VerbsHandle<rdma_cm_id> id = {});
  VerbsHello Hello() const;
  /// Takes over the peer's ring and limits and, but for iWARP, joins the queue pairs. `peer` has
  /// been checked.
  Status Join(const VerbsHello& peer);
  /// Sends a message with `flags` of ControlMessage; a probe only shows that the network lets it
  /// through.
  Status SendControl(uint32_t flags);
  /// Whether the peer's probe has come. Errors: what befell the queue pair.
  Result<bool> Probed();

  VerbsQueuePair& queue_pair() { return queue_pair_; }
  SendRequests& requests() { return requests_; }

  /// As those of Connection.
  Result<size_t> Write(std::span<const iovec> parts);
  Result<size_t> Read(std::span<std::byte> buffer);
  /// Whether there are bytes to read, and whether any may be written.
  bool readable() const { return credit_.readable() > 0; }
  bool writable() const;
  /// Tells the peer that nothing more is written.
  void End();
  /// Takes in what has completed, and returns credit that is due.
  Status Poll();
  /// As Poll, and the next completion makes an event: nothing is missed between the two.
  Status Await();

  /// The peer has gone; what it wrote before is still read.
  void HangUp() { hung_up_ = true; }
  /// Errors: kUnavailable: nothing can be sent any more.
  Status CheckSending() const;
  /// Whether nothing more will come, or go.
  bool over() const { return ended_ || hung_up_ || !queue_pair_.failure().ok(); }

 private:
  Result<size_t> Put(std::span<const iovec> parts);
  void AddPiece(VerbsChain& chain, size_t place, size_t bytes);
  void AddControl(VerbsChain& chain, uint32_t arrived, uint32_t flags);
  Status SendDue();
  Status Received(const ibv_wc& completion);

  VerbsBuffers buffers_;
  VerbsQueuePair queue_pair_;  ///< Ends before its memory does.
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
