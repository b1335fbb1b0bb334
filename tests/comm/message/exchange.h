/// \file
/// A channel's parts without its lock, loop and thread, all in the test's own thread: the test
/// gives them a peer's frames one by one, and takes the frames that they send.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "comm/message/operation.h"
#include "comm/message/placement.h"
#include "comm/message/receiver.h"
#include "comm/message/sender.h"
#include "comm/stream/metered_stream.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

inline constexpr uint32_t kExchangeGeneration = 7;

inline FrameHeader FrameOf(FrameKind kind, uint64_t id, uint64_t total) {
  FrameHeader header;
  header.generation = kExchangeGeneration;
  header.kind = kind;
  header.id = id;
  header.total = total;
  return header;
}

/// A frame of any kind, with its payload.
struct WholeFrame {
  FrameHeader header;
  Bytes payload;
};

inline WholeFrame EagerFrame(uint64_t tag, const Bytes& payload) {
  FrameHeader header = FrameOf(FrameKind::kEager, 0, payload.size());
  header.tag = tag;
  header.length = static_cast<uint32_t>(payload.size());
  return {.header = header, .payload = payload};
}

inline WholeFrame DataFrame(uint64_t id, const Bytes& payload) {
  FrameHeader header = FrameOf(FrameKind::kData, id, 0);
  header.length = static_cast<uint32_t>(payload.size());
  return {.header = header, .payload = payload};
}

inline FrameHeader RequestFrame(uint64_t id, uint64_t tag, uint64_t total) {
  FrameHeader header = FrameOf(FrameKind::kRequest, id, total);
  header.tag = tag;
  return header;
}

/// A connection whose input is set by the test, and whose output the test reads.
class TestConnection final : public Connection, public DirectPlacement {
 public:
  explicit TestConnection(bool places) : places_(places) {}

  ConnectionInfo info() override {
    return {.transport = "test", .placement = places_ ? this : nullptr};
  }
  Result<size_t> Write(std::span<const iovec> parts) override {
    size_t taken = 0;
    for (const iovec& part : parts) {
      const size_t size = std::min(part.iov_len, room - taken);
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      written.insert(written.end(), bytes, bytes + size);
      taken += size;
    }
    room -= taken;
    return taken;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    const size_t size = std::min(buffer.size(), incoming.size());
    std::copy_n(incoming.begin(), size, buffer.begin());
    incoming.erase(incoming.begin(), incoming.begin() + static_cast<ptrdiff_t>(size));
    return size;
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override { return {}; }
  void Close(Ending /*how*/) override {}

  Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& /*region*/,
                              std::span<std::byte> /*bytes*/) override {
    return RemoteMemory{.address = 4096, .key = 5};
  }
  Status Prepare(const std::shared_ptr<const SharedRegion>& /*region*/) override {
    return Status::Ok();
  }
  Result<size_t> Place(const std::shared_ptr<const SharedRegion>& /*region*/,
                       std::span<const std::byte> bytes,
                       const RemoteMemory& /*target*/) override {
    given += bytes.size();
    return bytes.size();
  }
  uint64_t placed() override { return arrived; }
  void Withdraw() override { ++withdrawn; }

  Bytes incoming;
  Bytes written;
  size_t room = SIZE_MAX / 2;  ///< The bytes that Write still takes.
  uint64_t given = 0;
  uint64_t arrived = 0;
  int withdrawn = 0;

 private:
  const bool places_;
};

class Exchange {
 public:
  explicit Exchange(std::shared_ptr<SharedRegions> regions = nullptr)
      : connection_(new TestConnection(regions != nullptr)),
        stream_(std::unique_ptr<Connection>(connection_),
                {.traffic_class = TrafficClass::kBulk,
                 .outgoing = bucket_,
                 .incoming = bucket_,
                 .sent_bytes = &bytes_,
                 .received_bytes = &bytes_}),
        placement(stream_, std::move(regions), &bytes_),
        sender(kExchangeGeneration, stream_, placement, frames_),
        receiver(kExchangeGeneration, stream_, sender, placement, frames_, "worker-1", nullptr) {}

  TestConnection& connection() { return *connection_; }
  FrameCounts& frames() { return *frames_; }
  double bytes_counted() const { return bytes_.Value(); }
  MeteredStream& stream() { return stream_; }

  static std::shared_ptr<Operation> MakeSend(uint64_t tag, std::span<const std::byte> data) {
    auto operation = std::make_shared<Operation>(std::chrono::minutes(2), nullptr);
    operation->key = {.tag = tag, .space = 0};
    operation->is_send = true;
    operation->source = data.data();
    operation->size = data.size();
    return operation;
  }
  static std::shared_ptr<Operation> MakeRecv(uint64_t tag, std::span<std::byte> data) {
    auto operation = std::make_shared<Operation>(std::chrono::minutes(2), nullptr);
    operation->key = {.tag = tag, .space = 0};
    operation->target = data.data();
    operation->size = data.size();
    return operation;
  }
  std::shared_ptr<Operation> Send(uint64_t tag, std::span<const std::byte> data) {
    auto operation = MakeSend(tag, data);
    sender.Queue(operation);
    return operation;
  }
  std::shared_ptr<Operation> Recv(uint64_t tag, std::span<std::byte> data) {
    auto operation = MakeRecv(tag, data);
    receiver.Take(operation);
    return operation;
  }
  /// Cancels an operation as the channel does.
  void Cancel(Operation& operation) {
    sender.Forget(operation);
    receiver.Forget(operation);
    operation.Complete(CancelledError("given up"));
  }

  /// The peer sends a frame, of which the first `bytes` bytes arrive; the rest waits for GiveRest.
  Status Give(const WholeFrame& frame, size_t bytes = SIZE_MAX) {
    const auto* header = reinterpret_cast<const std::byte*>(&frame.header);
    Bytes all(header, header + sizeof(frame.header));
    all.insert(all.end(), frame.payload.begin(), frame.payload.end());
    rest_.insert(rest_.end(), all.begin(), all.end());
    return GiveRest(bytes);
  }
  Status Give(const FrameHeader& header) {
    return Give(WholeFrame{.header = header, .payload = {}});
  }
  Status GiveRest(size_t bytes = SIZE_MAX) {
    const auto size = static_cast<ptrdiff_t>(std::min(bytes, rest_.size()));
    connection_->incoming.insert(connection_->incoming.end(), rest_.begin(), rest_.begin() + size);
    rest_.erase(rest_.begin(), rest_.begin() + size);
    Status status;
    while (status.ok() && (!connection_->incoming.empty() || receiver.HasStaged())) {
      const size_t before = connection_->incoming.size();
      const bool staged = receiver.HasStaged();
      status = receiver.Receive(nullptr);
      if (connection_->incoming.size() == before && staged == receiver.HasStaged()) {
        break;  // A part of a header.
      }
    }
    return status;
  }

  /// The whole frames that were sent to the peer since the last call.
  std::vector<WholeFrame> Sent() {
    while (true) {
      const size_t before = connection_->written.size();
      const auto more = sender.Pump();
      if (!more.ok() || !*more || connection_->written.size() == before) {
        break;
      }
    }
    std::vector<WholeFrame> frames;
    Bytes& written = connection_->written;
    while (written.size() >= sizeof(FrameHeader)) {
      WholeFrame frame;
      std::memcpy(&frame.header, written.data(), sizeof(FrameHeader));
      const size_t size = sizeof(FrameHeader) + frame.header.length;
      if (written.size() < size) {
        break;
      }
      const auto end = written.begin() + static_cast<ptrdiff_t>(size);
      frame.payload.assign(written.begin() + sizeof(FrameHeader), end);
      written.erase(written.begin(), end);
      frames.push_back(std::move(frame));
    }
    return frames;
  }
  std::vector<FrameHeader> SentHeaders() {
    std::vector<FrameHeader> headers;
    for (const WholeFrame& frame : Sent()) {
      headers.push_back(frame.header);
    }
    return headers;
  }

 private:
  metrics::Counter bytes_;
  const std::shared_ptr<TokenBucket> bucket_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<FrameCounts> frames_ = std::make_shared<FrameCounts>();
  TestConnection* const connection_;
  MeteredStream stream_;
  Bytes rest_;

 public:
  Placement placement;
  Sender sender;
  Receiver receiver;
};

}  // namespace heddle::comm
