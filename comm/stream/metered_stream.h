/// \file
/// A connection behind the emulated link: what passes is counted, and held back where a token
/// bucket has none left.
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

/// How a channel's bytes are paced and counted.
struct LinkMeter {
  TrafficClass traffic_class = TrafficClass::kBulk;
  std::shared_ptr<TokenBucket> outgoing;  ///< The worker's emulated link.
  std::shared_ptr<TokenBucket> incoming;
  metrics::Counter* sent_bytes = nullptr;
  metrics::Counter* received_bytes = nullptr;
};

/// Thread: its channel's lock, but the counts of bytes: any.
class MeteredStream final : public ByteSource {
 public:
  MeteredStream(std::unique_ptr<Connection> connection, LinkMeter meter)
      : connection_(std::move(connection)),
        info_(connection_->info()),
        meter_(std::move(meter)) {}

  Connection& connection() { return *connection_; }
  /// Also once closed; what it offers lives as long as the connection.
  const ConnectionInfo& info() const { return info_; }
  const LinkMeter& meter() const { return meter_; }

  /// Looks anew whether the link, or the connection, has bytes.
  void BeginReading();
  /// Errors: Connection::Read.
  Result<size_t> Read(std::span<std::byte> buffer) override;
  /// A peer that is gone keeps the link busy no longer: its end is to be learnt at once.
  void PeerHungUp() { peer_hung_up_ = true; }

  /// Looks anew whether the link has room.
  void BeginWriting() { out_limited_ = false; }
  /// Whether the next bytes may go out now.
  bool MayWrite();
  /// Bytes that are to go out in one piece at most.
  size_t PieceBytes(size_t unlimited) { return meter_.outgoing->PieceBytes(unlimited); }
  /// They have gone out, or were given to the device.
  void Wrote(size_t bytes);
  /// Nothing waits for the link any more.
  void EndWriting() { SetWaiting(out_waits_, false, *meter_.outgoing); }

  /// The emulated link holds back what could move.
  bool limited() const { return in_limited_ || out_limited_; }
  bool in_limited() const { return in_limited_; }
  bool out_limited() const { return out_limited_; }
  /// When to go on with what was held back, or was cut short to let others have their turn;
  /// forgotten by this call. Time::max(): there is no such thing.
  Time TakeResumeAt() { return std::exchange(resume_at_, Time::max()); }
  void ResumeAt(Time time) { resume_at_ = std::min(resume_at_, time); }

  /// Bytes that moved in either direction so far.
  uint64_t moved() const { return moved_; }
  /// Such as were placed by a device.
  void CountMoved(uint64_t bytes) { moved_ += bytes; }
  void CountReceived(size_t bytes) { meter_.received_bytes->Add(static_cast<double>(bytes)); }
  int64_t bytes_sent() const { return bytes_sent_.load(); }
  /// Bytes that went beside the connection. Thread: any.
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
  Time write_began_;  ///< Of the piece that MayWrite let go.
  bool peer_hung_up_ = false;
  bool out_waits_ = false;  ///< As told to the bucket.
  bool in_waits_ = false;
  bool out_limited_ = false;
  bool in_limited_ = false;
  /// The connection gave less than was asked for: there is no more at this moment.
  bool in_drained_ = false;
};

}  // namespace heddle::comm
