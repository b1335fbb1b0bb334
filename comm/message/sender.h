/// \file
/// The sending half of a channel: it chooses the next frame and writes it to the stream. The order
/// is: control frames, the first frames of messages, then the next chunk of the large message that
/// was granted first.
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

/// The sending half of a channel. Thread: guarded by its channel's lock.
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
  /// Queues a control frame with `text`, truncated to kAbortTextBytes, as its payload. The
  /// header's generation and length are filled in here.
  void QueueControl(const FrameHeader& header, std::string_view text = {});
  void QueueControl(FrameKind kind, uint64_t id, uint64_t total);
  /// Drops the queued control frames, before the last notification to the peer is queued.
  void ClearControl() { control_.clear(); }

  /// Writes as much as the connection and the emulated link take now. False: nothing is left to
  /// write. Errors: those of Connection::Write and Placement::Place.
  Result<bool> Pump();
  bool HasOutput() const;
  /// Whether a frame or a placed piece has begun and waits for room in the connection or the link.
  bool sending() const { return writer_.active() || to_place_ > 0; }

  /// Handles the peer's grant or reject. Errors: kDataLoss (no such request waits for a reply).
  Status OnAnswer(const FrameHeader& answer, std::string_view peer_name);
  /// Handles the peer's credit. Errors: kDataLoss (more than was spent).
  Status OnCredit(const FrameHeader& credit) { return credit_.Return(credit.total); }

  /// Removes a Send, so that its buffer is not accessed any more. A frame that is partly written is
  /// finished from a copy, because the stream must stay intact for later messages.
  void Forget(const Operation& operation);
  void TakeAll(Operations& into);
  bool Has(const KeyPredicate& fits) const;
  /// Whether a request waits for the peer's reply.
  bool asks() const { return !requests_.empty(); }
  /// Whether a Send is being placed.
  bool IsPlacing() const;

 private:
  bool NextFrame();
  bool StartMessage();
  bool StartChunk();
  void Begin(FrameHeader header, std::shared_ptr<Operation> operation);
  /// Counts the frame in FrameCounts. Must be called before its first byte is written.
  void Count(FrameHeader& header);
  /// Writes a part of the current frame and returns how many bytes the connection took.
  Result<size_t> WriteSome();
  /// Places a part of the current piece and returns how many bytes the device took.
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
  std::deque<std::shared_ptr<Operation>> messages_;  ///< Messages without a first frame yet.
  std::deque<std::shared_ptr<Operation>> granted_;   ///< Granted messages; front: has begun.
  Requests requests_;
  EagerCredit credit_;
  FrameWriter writer_;
  std::shared_ptr<Operation> operation_;  ///< The message of the current frame or placed piece.
  size_t to_place_ = 0;                   ///< Bytes left of the current placed piece.
};

}  // namespace heddle::comm
