/// \file
/// Reads frames from a byte stream. Headers and small payloads go through a staging buffer, so that
/// one read serves several frames; the bulk of a payload is read directly into its buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// The byte stream that a FrameReader reads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads available bytes, up to the buffer's size, and returns how many; 0: none yet.
  virtual Result<size_t> Read(std::span<std::byte> buffer) = 0;
};

/// Reads frames. Thread: guarded by its channel's lock.
class FrameReader {
 public:
  enum class Step : uint8_t {
    kStarved,  ///< The source has no more bytes now.
    kMoved,    ///< Bytes were read; no frame began or ended.
    kBegan,    ///< A frame began: header() is valid, and SetTarget sets its payload's buffer.
    kEnded,    ///< The frame's payload is complete.
  };

  explicit FrameReader(uint32_t generation);

  /// Makes one step. Errors: those of the source; kDataLoss (CheckFrame).
  Result<Step> Advance(ByteSource& source);
  /// Header of the frame that began last.
  const FrameHeader& header() const { return header_; }
  /// Sets the buffer for the rest of the frame's payload. Null, the initial value, drops it.
  void SetTarget(std::byte* target) { target_ = target; }
  /// Whether staged bytes are left for later steps.
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
  size_t left_ = 0;  ///< Bytes left of the payload.
  std::byte* target_ = nullptr;
};

}  // namespace heddle::comm
