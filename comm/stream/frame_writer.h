/// \file
/// One frame on its way into a byte stream, which may take it in any number of pieces.
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

/// Thread: its channel's lock.
class FrameWriter {
 public:
  /// `payload`, of header.length bytes, stays the caller's until the frame is done, or Own.
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
  /// A frame has begun and is not done.
  bool active() const { return active_; }
  const FrameHeader& header() const { return header_; }

  /// What is to be written next, of the payload at most `room` bytes. Valid until the next call.
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
  /// The stream took so many bytes of them. Whether the frame is done.
  bool Wrote(size_t bytes) {
    done_ += bytes;
    active_ = done_ < sizeof(FrameHeader) + header_.length;
    return !active_;
  }
  /// The payload goes back to the caller: what is left is written from a copy, because the stream
  /// must stay whole for the frames behind.
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
  size_t done_ = 0;  ///< Of header and payload together.
  bool active_ = false;
  std::array<iovec, 2> parts_{};
};

}  // namespace heddle::comm
