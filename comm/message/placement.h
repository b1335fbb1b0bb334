/// \file
/// Direct placement of messages: an RDMA device writes the message from buffer to buffer
/// (DirectPlacement in transport.h). It is used for messages of kPlacedBytes and more whose buffers
/// are shared buffers at both ends. The receiver's grant names its buffer, the sender's device
/// writes into it, and a frame after the last byte reports that all bytes are there.
///
/// Memory of another device (Endpoint::ImportDeviceMemory) has no other way. Where it cannot be
/// placed, the message alone fails, at both ends: the end that finds out tells the other.
///
/// A buffer is returned to its owner before the message is complete only when a wait is given up or
/// the group ends. The connection's registrations are revoked first, so that late writes cannot
/// land in the buffer. The peer then finds its connection broken; the other traffic class reports
/// the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "comm/message/operation.h"
#include "comm/stream/frame.h"
#include "comm/stream/metered_stream.h"
#include "comm/transport/shared_memory.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// The placed messages of a channel. Thread: guarded by its channel's lock.
class Placement {
 public:
  /// `regions` and `placed_bytes` may be null if the connection does not support placement.
  Placement(MeteredStream& stream,
            std::shared_ptr<SharedRegions> regions,
            metrics::Counter* placed_bytes)
      : stream_(stream),
        device_(stream.info().placement),
        regions_(std::move(regions)),
        placed_bytes_(placed_bytes) {}

  /// Whether some of `bytes` is memory of another device.
  bool TouchesDevice(std::span<const std::byte> bytes) const {
    return regions_ != nullptr && regions_->TouchesDevice(bytes);
  }
  /// The status of a message between `peer` and memory of a device that has no way.
  static Status Unplaced(std::string_view peer) {
    return UnimplementedError("nothing reaches the device memory of a message with {}", peer);
  }
  /// Implements Communicator::RegisterDeviceMemory.
  Status RegisterDeviceMemory(std::span<const std::byte> bytes);

  // Receiving.
  /// Exposes the buffer of a Recv to the peer's device if the message can be placed, and stores the
  /// address in `grant`.
  void Expose(Operation& operation, FrameHeader& grant);

  // Sending.
  /// Whether a Send can be placed as far as this end knows; the receiver's buffer is not known yet.
  bool MayPlace(const Operation& operation) const;
  /// Sets `operation.region` and `operation.remote` if the granted message can be placed.
  void Prepare(Operation& operation, const FrameHeader& grant);
  /// Gives the device at most `room` of the operation's next bytes and returns how many it took.
  /// Errors: those of DirectPlacement::Place.
  Result<size_t> Place(Operation& operation, size_t room);
  /// Adds a Send that ends when the device has written all bytes given to it so far.
  void AllGiven(std::shared_ptr<Operation> operation);
  /// Ends the Sends whose bytes have arrived.
  void EndArrived();

  /// Revokes the devices' access to all buffers (DirectPlacement::Withdraw).
  void Withdraw();
  /// Whether a device may still read or write an operation's buffer.
  static bool IsInDevice(const Operation& operation) {
    return operation.exposed || (operation.region != nullptr && operation.offset > 0);
  }
  /// Whether no Send waits for the device to write its last bytes.
  bool empty() const { return in_device_.empty(); }
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;

 private:
  /// A Send whose bytes have all been given to the device.
  struct Given {
    uint64_t position = 0;  ///< Value that DirectPlacement::placed must reach.
    std::shared_ptr<Operation> operation;
  };

  MeteredStream& stream_;
  DirectPlacement* const device_;  ///< Null: everything goes through the stream.
  const std::shared_ptr<SharedRegions> regions_;
  metrics::Counter* const placed_bytes_;
  uint64_t given_ = 0;  ///< Bytes given to the device.
  std::deque<Given> in_device_;
};

}  // namespace heddle::comm
