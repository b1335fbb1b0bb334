/// \file
/// Writes one frame at a time to a byte stream, which may take it in any number of pieces.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <sys/uio.h>

#include "base/bytes.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// Writes frames. Thread: guarded by its channel's lock.
class FrameWriter {
 public:
  /// Begins a frame. The caller keeps `payload`, of header.length bytes, alive until the frame is
  /// done or Own is called.
  void Begin(const FrameHeader& header, const std::byte* payload) {
    header_ = header;
    payload_ = payload;
    done_ = 0;
    active_ = true;
  }
  void Begin(const FrameHeader& header, Bytes payload) {
    owned_ = std::move(payload);
    Begin(header, owned_.data());
  }
  /// Whether a frame has begun and is not done.
  bool active() const { return active_; }
  const FrameHeader& header() const { return header_; }

  /// The bytes to write next, at most `room` of the payload. Valid until the next call.
  std::span<const iovec> Parts(size_t room) {
    size_t count = 0;
    if (done_ < sizeof(FrameHeader)) {
      parts_[count++] = {reinterpret_cast<std::byte*>(&header_) + done_,
                         sizeof(FrameHeader) - done_};
    }
    const size_t payload_done = done_ < sizeof(FrameHeader) ? 0 : done_ - sizeof(FrameHeader);
    if (payload_done < header_.length) {
      parts_[count++] = {const_cast<std::byte*>(payload_) + payload_done,
                         std::min(room, header_.length - payload_done)};
    }
    return std::span<const iovec>(parts_).first(count);
  }
  /// Records that the stream took `bytes` bytes of Parts. Returns whether the frame is done.
  bool Wrote(size_t bytes) {
    done_ += bytes;
    active_ = done_ < sizeof(FrameHeader) + header_.length;
    return !active_;
  }
  /// Copies the payload, so that the caller may free it. The rest is written from the copy, because
  /// the stream must stay intact for later frames.
  void Own() {
    if (active_ && payload_ != owned_.data()) {
      owned_.assign(payload_, payload_ + header_.length);
      payload_ = owned_.data();
    }
  }

 private:
  FrameHeader header_;
  const std::byte* payload_ = nullptr;
  Bytes owned_;
  size_t done_ = 0;  ///< Bytes written of header and payload together.
  bool active_ = false;
  std::array<iovec, 2> parts_{};
};

}  // namespace heddle::comm
