/// \file
/// The receiving half of a channel: what each frame of the peer means. It matches messages with
/// Recvs, grants and rejects those that ask, and gives the window back as it is freed. A frame that
/// a peer of good will does not send ends the connection.
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

/// Takes what a peer says of its waits (frames of kind kWaiting, frame.h). It is called with a
/// channel's lock held and must not call the channel back.
class WaitReports {
 public:
  virtual ~WaitReports() = default;
  virtual void OnReport(const FrameHeader& report) = 0;
};

/// Thread: its channel's lock.
class Receiver {
 public:
  /// `reports`: null when nobody wants any.
  Receiver(uint32_t generation,
           MeteredStream& stream,
           Sender& sender,
           Placement& placement,
           std::shared_ptr<FrameCounts> frames,
           std::string peer_name,
           std::shared_ptr<WaitReports> reports);

  /// What is there, until `awaited` (null: nothing) is done: its caller uses what came while it is
  /// in the cache. Errors: the connection's; kDataLoss (the peer broke the protocol); kAborted and
  /// kCancelled (it aborted, or left; with its words).
  Status Receive(const Work::State* awaited);

  /// Gives a Recv the message that came early, or posts it.
  void Take(std::shared_ptr<Operation> operation);
  /// Whether the next message for `key` lies here in whole.
  bool HasWhole(const MessageKey& key) const;

  /// Forgets a Recv, so that nothing touches its buffer any more.
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  void DropEarly() { matching_.DropEarly(); }

  /// Whether a Recv is in flight, or something is arriving.
  bool InFlight() const;
  bool Has(const KeyPredicate& fits) const;
  std::vector<UnexpectedMessage> Unexpected(const KeyPredicate& fits) const {
    return matching_.Unexpected(fits);
  }
  bool IsExposed() const { return grants_.HasExposed(); }
  /// Bytes were read that belong to frames behind the last one.
  bool HasStaged() const { return reader_.HasStaged(); }
  /// Window that messages hold which lie here unmatched, or are arriving.
  size_t window_held() const { return window_.held(); }

 private:
  Status BeginFrame(const FrameHeader& frame);
  Status BeginEager(const FrameHeader& frame);
  Status BeginRequest(const FrameHeader& frame);
  Status BeginData(const FrameHeader& frame);
  Status OnPlaced(const FrameHeader& frame);
  Status EndFrame(const FrameHeader& frame);
  void EndEager(const FrameHeader& frame,
                const std::shared_ptr<Operation>& operation,
                const std::shared_ptr<EarlyMessage>& early);
  void Grant(uint64_t id, std::shared_ptr<Operation> operation);
  void Reject(uint64_t id, size_t expected) {
    sender_.QueueControl(FrameKind::kReject, id, expected);
  }
  void FreeWindow(size_t message_bytes);
  Status MismatchError(size_t sent, size_t posted) const;

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
  // Of the frame that is arriving.
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<EarlyMessage> early_;
  Bytes text_;
};

}  // namespace heddle::comm
