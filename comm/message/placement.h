/// \file
/// Messages that devices carry from buffer to buffer (DirectPlacement in transport.h): those of
/// more than a frame whose buffers are shared buffers at both ends. The receiver's grant names its
/// buffer; the sender's device writes there, and a frame behind the last byte says that all is
/// there.
///
/// A buffer goes back to its owner before the message has come only when a wait was given up or the
/// group ends. The connection's registrations go first, so that nothing that comes late can land in
/// it. The peer then finds its connection broken; why, the other traffic class tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/status.h"
#include "comm/message/operation.h"
#include "comm/stream/frame.h"
#include "comm/stream/metered_stream.h"
#include "comm/transport/shared_memory.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Thread: its channel's lock.
class Placement {
 public:
  /// `regions` and `placed_bytes` may be null over a connection that places nothing.
  Placement(MeteredStream& stream,
            std::shared_ptr<SharedRegions> regions,
            metrics::Counter* placed_bytes)
      : stream_(stream),
        device_(stream.info().placement),
        regions_(std::move(regions)),
        placed_bytes_(placed_bytes) {}

  // Receiving.
  /// Lets the peer place a message that it is granted, if it can be; `grant` then says where.
  void Expose(Operation& operation, FrameHeader& grant);

  // Sending.
  /// Whether a Send's end may be placed; its receiver's is not known yet.
  bool MayPlace(const Operation& operation) const;
  /// A granted message will be placed, if it can be: its `region` is set then.
  void Prepare(Operation& operation, const FrameHeader& grant);
  /// Gives the device at most `room` of the operation's next bytes; how many it took. Errors:
  /// DirectPlacement::Place.
  Result<size_t> Place(Operation& operation, size_t room);
  /// The device has all of the operation's bytes.
  void AllGiven(std::shared_ptr<Operation> operation);
  /// Ends the Sends whose bytes have arrived.
  void EndArrived();

  /// Takes everything back that the device was given, or was let write into.
  void Withdraw();
  /// Whether a device may be about to read or write what an operation was given.
  static bool IsInDevice(const Operation& operation) {
    return operation.exposed || (operation.region != nullptr && operation.offset > 0);
  }
  /// Sends all of whose bytes the device has.
  bool empty() const { return in_device_.empty(); }
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;

 private:
  /// A Send whose bytes have all been given to the device.
  struct Given {
    uint64_t position = 0;  ///< What DirectPlacement::placed must reach.
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
