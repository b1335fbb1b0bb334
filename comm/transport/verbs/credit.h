/// \file
/// What a connection over RDMA may send and what it owes, in numbers: pure, without a device.
///
/// A writer never has more bytes under way than the ring holds (RingBytes), nor more notifications
/// than the reader has receives posted, so that a receiver is never "not ready". The last kReserve
/// receives are kept for messages that return credit. Credit is due when a quarter of the ring or
/// of the receives is owed, so a full exchange of one ring costs four small messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// Bytes of the ring, which are also the most that are under way, and the most that are placed at
/// a time beside them: a NIC without flow control of its own must not be flooded (with 16 MiB under
/// way between two software devices a third of the rate of 1 MiB is left), and 1 MiB covers
/// 200 Gbit/s at 40 us. Urgent messages are small as a rule.
constexpr size_t RingBytes(TrafficClass traffic_class) {
  return size_t{traffic_class == TrafficClass::kBulk ? 1024U : 256U} << 10;
}

/// A message of the control kind, beside the stream. Positions only grow. Little endian.
struct ControlMessage {
  static constexpr uint32_t kProbe = 1;
  static constexpr uint32_t kEnd = 2;  ///< The stream ends here.

  uint64_t consumed = 0;  ///< Bytes of the receiver's stream that the sender has read.
  uint64_t reposted = 0;  ///< Receives that the sender has used and posted again.
  uint32_t arrived = 0;   ///< Bytes that the sender wrote into the ring just before.
  uint32_t flags = 0;
};
static_assert(sizeof(ControlMessage) == 24);

/// The credit of the streams in both directions. Positions are in bytes of a stream.
class StreamCredit {
 public:
  /// Receives posted at all times. One serves a piece of the stream or a control message.
  static constexpr uint32_t kReceives = 256;
  /// Of the peer's receives, those that only control messages may use. Those are due once a quarter
  /// of the ring or of the receives, so that fewer than eight can be under way when the stream's
  /// share is used up; without them both ends could wait for the other's credit.
  static constexpr uint32_t kReserve = 8;

  explicit StreamCredit(size_t ring_bytes) : ring_bytes_(ring_bytes) {}
  void SetPeer(uint64_t receives) { peer_receives_ = receives; }

  /// Whether the peer has a receive for one more message.
  bool MaySend(bool control) const {
    return messages_ - peer_reposted_ + 1 + (control ? 0 : kReserve) <= peer_receives_;
  }
  /// A message goes out that uses a receive.
  void Send() { ++messages_; }
  /// Takes the credit that a message returns to who has written up to `written`. Errors: kDataLoss.
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

  /// Bytes lie in the ring. Errors: kDataLoss.
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
  /// Receives were used and are posted again.
  void Repost(size_t receives) { reposted_ += receives; }
  /// Whether the peer is owed so much that it should be told.
  bool Due() const {
    return consumed_ - announced_consumed_ >= ring_bytes_ / 4 ||
           reposted_ - announced_reposted_ >= kReceives / 4;
  }
  /// A message that returns all that is owed; it will be sent.
  ControlMessage Return(uint32_t arrived, uint32_t flags) {
    Send();
    announced_consumed_ = consumed_;
    announced_reposted_ = reposted_;
    return {.consumed = consumed_, .reposted = reposted_, .arrived = arrived, .flags = flags};
  }

 private:
  const size_t ring_bytes_;
  uint64_t peer_receives_ = 0;
  uint64_t messages_ = 0;  ///< Receives used at the peer.
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
  /// That may be under way, completed or not; kReserve of them are kept for control messages.
  static constexpr uint32_t kDepth = 128;
  struct Bytes {
    uint64_t streamed = 0;
    uint64_t placed = 0;
  };

  explicit SendRequests(size_t ring_bytes) : ring_bytes_(ring_bytes) {}

  bool MayAdd(uint32_t count, bool control) const {
    return next_ - completed_ + count + (control ? 0 : StreamCredit::kReserve) <= kDepth;
  }
  /// The number of the next one.
  uint64_t next() const { return next_; }
  /// Adds one that carries `more`. Returns whether it is to report its completion; the `last` of a
  /// message that somebody waits for does.
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
  /// Of those given, the bytes whose memory here the device no longer needs.
  const Bytes& done() const { return done_; }
  /// Bytes of the stream that may be added: free at the peer, and no longer needed here should the
  /// device have to send them again.
  size_t StreamRoom(uint64_t peer_consumed) const {
    return ring_bytes_ -
           static_cast<size_t>(given_.streamed - std::min(peer_consumed, done_.streamed));
  }
  /// Bytes that may be placed.
  size_t PlaceRoom() const {
    return MayAdd(1, false) ? ring_bytes_ - static_cast<size_t>(given_.placed - done_.placed) : 0;
  }

 private:
  /// A request that reports its completion frees all before it. One in sixteen does, or one in an
  /// eighth of the ring.
  static constexpr uint64_t kReportEvery = 16;
  static constexpr size_t kReportPart = 8;

  const size_t ring_bytes_;
  uint64_t next_ = 0;
  uint64_t completed_ = 0;
  uint64_t reported_ = 0;  ///< Up to and with the last that will report its completion.
  uint64_t reported_bytes_ = 0;
  Bytes given_;
  Bytes done_;
  std::array<Bytes, kDepth> upto_{};  ///< Given up to and with each request.
};

}  // namespace heddle::comm
