/// \file
/// A connection behind the emulated link: it counts the bytes that pass and delays them while a
/// token bucket is in debt.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "comm/stream/frame_reader.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/traffic_class.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// The token buckets and counters for a channel's bytes.
struct LinkMeter {
  TrafficClass traffic_class = TrafficClass::kBulk;
  std::shared_ptr<TokenBucket> outgoing;  ///< The worker's emulated link, outgoing direction.
  std::shared_ptr<TokenBucket> incoming;  ///< The worker's emulated link, incoming direction.
  metrics::Counter* sent_bytes = nullptr;
  metrics::Counter* received_bytes = nullptr;
};

/// A metered connection. Thread: guarded by its channel's lock; bytes_sent and CountShared: any.
class MeteredStream final : public ByteSource {
 public:
  MeteredStream(std::unique_ptr<Connection> connection, LinkMeter meter)
      : connection_(std::move(connection)),
        info_(connection_->info()),
        meter_(std::move(meter)) {}

  Connection& connection() { return *connection_; }
  /// The connection's properties, valid also after Close; the objects that it points to live as
  /// long as the connection.
  const ConnectionInfo& info() const { return info_; }
  const LinkMeter& meter() const { return meter_; }

  /// Must be called before a round of Read, so that the link and the connection are tried again.
  void BeginReading();
  /// Reads bytes of the connection if the link has room. Errors: those of Connection::Read.
  Result<size_t> Read(std::span<std::byte> buffer) override;
  /// Lifts the limit on reading, so that the end of a peer that is gone is detected at once.
  void PeerHungUp() { peer_hung_up_ = true; }

  /// Must be called before a round of writes, so that the link is tried again.
  void BeginWriting() { out_limited_ = false; }
  /// Whether the next piece may be written now.
  bool MayWrite();
  /// The most bytes to write in one piece.
  size_t PieceBytes(size_t unlimited) { return meter_.outgoing->PieceBytes(unlimited); }
  /// Counts bytes that were written, or were given to the device.
  void Wrote(size_t bytes);
  /// Records that no output waits for the link any more.
  void EndWriting() { SetWaiting(out_waits_, false, *meter_.outgoing); }

  /// Whether the emulated link delays bytes of either direction.
  bool limited() const { return in_limited_ || out_limited_; }
  bool in_limited() const { return in_limited_; }
  bool out_limited() const { return out_limited_; }
  /// Time at which to resume work that the link delays or that used up its budget; Time::max():
  /// there is none. Resets the time.
  Time TakeResumeAt() { return std::exchange(resume_at_, Time::max()); }
  void ResumeAt(Time time) { resume_at_ = std::min(resume_at_, time); }

  /// Bytes moved in either direction so far; grows on every progress.
  uint64_t moved() const { return moved_; }
  /// Counts progress by direct placement in moved().
  void CountMoved(uint64_t bytes) { moved_ += bytes; }
  void CountReceived(size_t bytes) { meter_.received_bytes->Add(static_cast<double>(bytes)); }
  int64_t bytes_sent() const { return bytes_sent_.load(); }
  /// Counts bytes that were exchanged through shared memory. Thread: any.
  void CountShared(int64_t sent, int64_t received);

  /// Drops the connection.
  void Close();

 private:
  /// Tells a bucket whether traffic of this stream waits for it.
  void SetWaiting(bool& waits, bool now_waits, TokenBucket& bucket) const;

  std::unique_ptr<Connection> connection_;
  const ConnectionInfo info_;
  const LinkMeter meter_;
  std::atomic<int64_t> bytes_sent_ = 0;
  uint64_t moved_ = 0;
  Time resume_at_ = Time::max();
  Time write_began_;  ///< Time of the last MayWrite; Time() without a limit.
  bool peer_hung_up_ = false;
  bool out_waits_ = false;  ///< The outgoing bucket counts this stream as waiting.
  bool in_waits_ = false;   ///< The incoming bucket counts this stream as waiting.
  bool out_limited_ = false;
  bool in_limited_ = false;
  /// The last read returned less than was asked for, so the connection has no more bytes now.
  bool in_drained_ = false;
};

}  // namespace heddle::comm
