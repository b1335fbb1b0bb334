/// \file
/// Flow control of a connection over RDMA: what it may send, and the credit that it owes the peer.
/// Pure; needs no device.
///
/// A writer never has more bytes in flight than the ring holds (RingBytes), nor more notifications
/// than the reader has receives posted, so that a receiver is never "not ready". The last kReserve
/// receives are reserved for messages that return credit. Credit is due when a quarter of the ring
/// or of the receives is owed, so transferring one full ring costs four small messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// Bytes of the ring. It is also the most bytes of the stream in flight, and the most placed bytes
/// in flight beside them: a NIC without flow control of its own must not be flooded (with 16 MiB in
/// flight, two software devices reach a third of the rate with 1 MiB), and 1 MiB covers 200 Gbit/s
/// at 40 us. Urgent messages are usually small.
constexpr size_t RingBytes(TrafficClass traffic_class) {
  return size_t{traffic_class == TrafficClass::kBulk ? 1024U : 256U} << 10;
}

/// A control message beside the stream, little endian. Its positions only grow.
struct ControlMessage {
  static constexpr uint32_t kProbe = 1;
  static constexpr uint32_t kEnd = 2;  ///< The stream ends here.

  uint64_t consumed = 0;  ///< Bytes of the receiver's stream that the sender has read.
  uint64_t reposted = 0;  ///< Receives that the sender has posted again after use.
  uint32_t arrived = 0;   ///< Bytes that the sender wrote into the ring just before.
  uint32_t flags = 0;
};
static_assert(sizeof(ControlMessage) == 24);

/// The credit of the streams in both directions. Positions are byte counts of a stream.
class StreamCredit {
 public:
  /// Receives posted at all times. Each receives one piece of the stream or one control message.
  static constexpr uint32_t kReceives = 256;
  /// The peer's receives that are reserved for control messages. Without them both ends could wait
  /// for the other's credit. A control message is due once per quarter of the ring or of the
  /// receives, so that fewer than eight can be in flight when the other receives are used up.
  static constexpr uint32_t kReserve = 8;

  explicit StreamCredit(size_t ring_bytes) : ring_bytes_(ring_bytes) {}
  void SetPeer(uint64_t receives) { peer_receives_ = receives; }

  /// Whether the peer has a receive left for one more message.
  bool MaySend(bool control) const {
    return messages_ - peer_reposted_ + 1 + (control ? 0 : kReserve) <= peer_receives_;
  }
  /// Counts a message that uses one of the peer's receives.
  void Send() { ++messages_; }
  /// Takes the credit that `message` returns. `written`: position up to which this end has written.
  /// Errors: kDataLoss (positions out of range).
  Status Take(const ControlMessage& message, uint64_t written) {
    if (message.consumed < peer_consumed_ || message.consumed > written ||
        message.reposted < peer_reposted_ || message.reposted > messages_) {
      return DataLossError("RDMA credit out of range");
    }
    peer_consumed_ = message.consumed;
    peer_reposted_ = message.reposted;
    return Status::Ok();
  }
  /// Position up to which the peer's ring is free again.
  uint64_t peer_consumed() const { return peer_consumed_; }

  /// Counts bytes that have arrived in the ring. Errors: kDataLoss (more than it has room for).
  Status Arrive(uint64_t bytes) {
    if (bytes > ring_bytes_ - readable()) {
      return DataLossError("more bytes than the RDMA ring holds");
    }
    arrived_ += bytes;
    return Status::Ok();
  }
  size_t readable() const { return static_cast<size_t>(arrived_ - consumed_); }
  uint64_t consumed() const { return consumed_; }
  void Consume(size_t bytes) { consumed_ += bytes; }
  /// Counts receives that were posted again after use.
  void Repost(size_t receives) { reposted_ += receives; }
  /// Whether so much credit is owed that it should be returned now.
  bool Due() const {
    return consumed_ - announced_consumed_ >= ring_bytes_ / 4 ||
           reposted_ - announced_reposted_ >= kReceives / 4;
  }
  /// Returns a control message with all credit that is owed. The caller must send it.
  ControlMessage Return(uint32_t arrived, uint32_t flags) {
    Send();
    announced_consumed_ = consumed_;
    announced_reposted_ = reposted_;
    return {.consumed = consumed_, .reposted = reposted_, .arrived = arrived, .flags = flags};
  }

 private:
  const size_t ring_bytes_;
  uint64_t peer_receives_ = 0;
  uint64_t messages_ = 0;  ///< Number of the peer's receives used so far.
  uint64_t peer_reposted_ = 0;
  uint64_t peer_consumed_ = 0;
  uint64_t arrived_ = 0;
  uint64_t consumed_ = 0;
  uint64_t announced_consumed_ = 0;
  uint64_t reposted_ = 0;
  uint64_t announced_reposted_ = 0;
};

/// The send requests of a queue pair, numbered from 0, and the bytes that each of them completes.
class SendRequests {
 public:
  /// The most requests that are not known to be completed; kReserve of them are reserved for
  /// control messages.
  static constexpr uint32_t kDepth = 128;
  struct Bytes {
    uint64_t streamed = 0;
    uint64_t placed = 0;
  };

  explicit SendRequests(size_t ring_bytes) : ring_bytes_(ring_bytes) {}

  bool MayAdd(uint32_t count, bool control) const {
    return next_ - completed_ + count + (control ? 0 : StreamCredit::kReserve) <= kDepth;
  }
  /// The number of the next request.
  uint64_t next() const { return next_; }
  /// Adds a request that carries `more`. Returns whether it must report its completion. The `last`
  /// request of a message whose Send waits for it always does.
  bool Add(Bytes more, bool last) {
    given_.streamed += more.streamed;
    given_.placed += more.placed;
    upto_[next_++ % kDepth] = given_;
    const uint64_t bytes = given_.streamed + given_.placed;
    const bool report = last || next_ - reported_ >= kReportEvery ||
                        bytes - reported_bytes_ >= ring_bytes_ / kReportPart;
    if (report) {
      reported_ = next_;
      reported_bytes_ = bytes;
    }
    return report;
  }
  void Complete(uint64_t number) {
    completed_ = number + 1;
    done_ = upto_[number % kDepth];
  }
  const Bytes& given() const { return given_; }
  /// The bytes of completed requests, whose memory the device no longer needs.
  const Bytes& done() const { return done_; }
  /// Bytes of the stream that may be added: the room that is free in the peer's ring and whose
  /// local copy the device no longer needs for a retransmission.
  size_t StreamRoom(uint64_t peer_consumed) const {
    return ring_bytes_ -
           static_cast<size_t>(given_.streamed - std::min(peer_consumed, done_.streamed));
  }
  /// Bytes that may be placed now.
  size_t PlaceRoom() const {
    return MayAdd(1, false) ? ring_bytes_ - static_cast<size_t>(given_.placed - done_.placed) : 0;
  }

 private:
  /// A request that reports its completion also completes all requests before it. At least one in
  /// kReportEvery requests does, and one per ring_bytes / kReportPart bytes.
  static constexpr uint64_t kReportEvery = 16;
  static constexpr size_t kReportPart = 8;

  const size_t ring_bytes_;
  uint64_t next_ = 0;
  uint64_t completed_ = 0;
  uint64_t reported_ = 0;  ///< Requests up to the last one that reports its completion.
  uint64_t reported_bytes_ = 0;
  Bytes given_;
  Bytes done_;
  std::array<Bytes, kDepth> upto_{};  ///< `given_` after each request, by number modulo kDepth.
};

}  // namespace heddle::comm
