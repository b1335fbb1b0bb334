/// \file
/// The sending half of a channel: which frame goes next, and handing it to the stream. Frames are
/// taken in this order: control, messages that begin, the next chunk of the large one that was
/// granted first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/message/credits.h"
#include "comm/message/operation.h"
#include "comm/message/placement.h"
#include "comm/message/rendezvous.h"
#include "comm/stream/frame.h"
#include "comm/stream/frame_writer.h"
#include "comm/stream/metered_stream.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// Thread: its channel's lock.
class Sender {
 public:
  Sender(uint32_t generation,
         MeteredStream& stream,
         Placement& placement,
         std::shared_ptr<FrameCounts> frames)
      : generation_(generation),
        stream_(stream),
        placement_(placement),
        frames_(std::move(frames)) {}

  void Queue(std::shared_ptr<Operation> message) { messages_.push_back(std::move(message)); }
  /// A control frame; its generation is filled in here. At most kAbortTextBytes of `text` travel.
  void QueueControl(const FrameHeader& header, std::string_view text = {});
  void QueueControl(FrameKind kind, uint64_t id, uint64_t total);
  /// Drops what has not begun; the peer is to hear nothing but what is queued from now on.
  void ClearControl() { control_.clear(); }

  /// Hands over what fits now. False: there is nothing left to hand over. Errors: Connection::Write
  /// and Place.
  Result<bool> Pump();
  bool HasOutput() const;
  /// A frame has begun and waits for room in the connection, or for the link.
  bool sending() const { return writer_.active() || to_place_ > 0; }

  /// Answers of the peer. Errors: kDataLoss (to nothing that was asked or spent).
  Status OnAnswer(const FrameHeader& answer, std::string_view peer_name);
  Status OnCredit(const FrameHeader& credit) { return credit_.Return(credit.total); }

  /// Forgets a Send, so that nothing touches its buffer any more. A frame that is half written is
  /// finished from a copy: the stream must stay whole for the messages behind it.
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;
  /// Whether something is asked for that the peer has not answered.
  bool asks() const { return !requests_.empty(); }
  /// Whether a Send is being placed.
  bool IsPlacing() const;

 private:
  bool NextFrame();
  bool StartMessage();
  bool StartChunk();
  void Begin(FrameHeader header, std::shared_ptr<Operation> operation);
  /// Counts it: to be called before a frame's first byte.
  void Count(FrameHeader& header);
  /// Bytes of the frame, or of the piece that is placed, that the connection took.
  Result<size_t> WriteSome();
  Result<size_t> PlaceSome();
  void EndFrame();
  void EndPiece();

  struct Control {
    FrameHeader header;
    Bytes payload;
  };

  const uint32_t generation_;
  MeteredStream& stream_;
  Placement& placement_;
  const std::shared_ptr<FrameCounts> frames_;

  std::deque<Control> control_;
  std::deque<std::shared_ptr<Operation>> messages_;  ///< Not begun.
  std::deque<std::shared_ptr<Operation>> granted_;   ///< In front: the one that has begun.
  Requests requests_;
  EagerCredit credit_;
  FrameWriter writer_;
  std::shared_ptr<Operation> operation_;  ///< Whose frame or piece is under way.
  size_t to_place_ = 0;                   ///< Of a piece of it that is placed: what is left.
};

}  // namespace heddle::comm
