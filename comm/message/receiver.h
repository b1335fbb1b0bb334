/// \file
/// The receiving half of a channel. It handles the peer's frames: it matches messages with Recvs,
/// grants or rejects rendezvous requests, and returns the eager window as it is freed. A frame that
/// violates the protocol ends the connection.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/message/credits.h"
#include "comm/message/matching.h"
#include "comm/message/operation.h"
#include "comm/message/placement.h"
#include "comm/message/rendezvous.h"
#include "comm/message/sender.h"
#include "comm/stream/frame.h"
#include "comm/stream/frame_reader.h"
#include "comm/stream/metered_stream.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// Receives a peer's reports of its waits (frames of kind kWaiting, frame.h). It is called with the
/// channel's lock held and must not call the channel.
class WaitReports {
 public:
  virtual ~WaitReports() = default;
  virtual void OnReport(const FrameHeader& report) = 0;
};

/// The receiving half of a channel. Thread: guarded by its channel's lock.
class Receiver {
 public:
  /// `reports`: null drops the peer's reports.
  Receiver(uint32_t generation,
           MeteredStream& stream,
           Sender& sender,
           Placement& placement,
           std::shared_ptr<FrameCounts> frames,
           std::string peer_name,
           std::shared_ptr<WaitReports> reports);

  /// Handles the frames that have arrived, up to a budget. Returns early when `awaited` (may be
  /// null) is done, so that its caller uses the data while it is in the cache. Errors: those of the
  /// connection; kDataLoss (the peer violated the protocol); kAborted (the peer aborted, with its
  /// reason); kCancelled (the peer left).
  Status Receive(const Work::State* awaited);

  /// Gives a Recv the message that arrived before it, or posts the Recv.
  void Take(std::shared_ptr<Operation> operation);
  /// Whether the next message for `key` has arrived in whole.
  bool HasWhole(const MessageKey& key) const;

  /// Removes a Recv, so that its buffer is not accessed any more.
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  void DropEarly() { matching_.DropEarly(); }

  /// Whether a Recv is in flight, or a message is arriving.
  bool InFlight() const;
  bool Has(const KeyPredicate& fits) const;
  std::vector<UnexpectedMessage> Unexpected(const KeyPredicate& fits) const {
    return matching_.Unexpected(fits);
  }
  bool IsExposed() const { return grants_.HasExposed(); }
  /// Whether bytes of later frames have been read already.
  bool HasStaged() const { return reader_.HasStaged(); }
  /// Bytes of the eager window taken by messages that are arriving or lie here unmatched.
  size_t window_held() const { return window_.held(); }

 private:
  Status BeginFrame(const FrameHeader& frame);
  Status BeginEager(const FrameHeader& frame);
  Status BeginRequest(const FrameHeader& frame);
  Status BeginData(const FrameHeader& frame);
  Status OnPlaced(const FrameHeader& frame);
  void OnUnplaced(const FrameHeader& frame);
  Status EndFrame(const FrameHeader& frame);
  void EndEager(const FrameHeader& frame,
                const std::shared_ptr<Operation>& operation,
                const std::shared_ptr<EarlyMessage>& early);
  void Grant(uint64_t id, std::shared_ptr<Operation> operation);
  void Reject(uint64_t id, size_t expected) {
    sender_.QueueControl(FrameKind::kReject, id, expected);
  }
  void FreeWindow(size_t message_bytes);
  /// Whether a message of `sent` bytes goes into the buffer of `posted`; `eager`: through the
  /// stream alone. Errors: kInvalidArgument (another size), kUnimplemented (memory of a device).
  Status CheckFit(size_t sent, bool eager, const Operation& posted) const;

  MeteredStream& stream_;
  Sender& sender_;
  Placement& placement_;
  const std::shared_ptr<FrameCounts> frames_;
  const std::string peer_name_;
  const std::shared_ptr<WaitReports> reports_;

  FrameReader reader_;
  Matching matching_;
  Grants grants_;
  EagerWindow window_;
  // State of the frame that is arriving.
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<EarlyMessage> early_;
  Bytes text_;
};

}  // namespace heddle::comm
