/// \file
/// Frames out of a byte stream. Headers and small payloads go through a stage, so that one read
/// serves several frames; the bulk of a payload is read straight into its buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// Where the bytes come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Gives as many bytes as are there and returns how many; 0: none yet.
  virtual Result<size_t> Read(std::span<std::byte> buffer) = 0;
};

/// Thread: its channel's lock.
class FrameReader {
 public:
  enum class Step : uint8_t {
    kStarved,  ///< The source has no more at this moment.
    kMoved,
    kBegan,  ///< header() has come, and SetTarget is to say where its payload goes.
    kEnded,  ///< Its payload has come in whole.
  };

  explicit FrameReader(uint32_t generation);

  /// Goes one step on. Errors: the source's; kDataLoss (CheckFrame).
  Result<Step> Advance(ByteSource& source);
  /// Of the frame that began last.
  const FrameHeader& header() const { return header_; }
  /// Where the rest of this frame's payload goes; null (as it begins): it is dropped.
  void SetTarget(std::byte* target) { target_ = target; }
  /// Whether bytes were read that no step has used yet.
  bool HasStaged() const { return stage_begin_ < stage_end_; }

 private:
  Result<Step> FillStage(ByteSource& source);
  Result<Step> ReadPayload(ByteSource& source);

  const uint32_t generation_;
  std::vector<std::byte> stage_;
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  FrameHeader header_;
  bool in_frame_ = false;
  size_t left_ = 0;  ///< Of the payload.
  std::byte* target_ = nullptr;
};

}  // namespace heddle::comm
