/// \file
/// The stream between a channel and one MPI rank: the channel writes and reads bytes, the MPI
/// thread takes and delivers pieces. A sender has at most kMpiWindow pieces that the other channel
/// has not read, so that the memory of both sides is bounded however much MPI buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include <sys/uio.h>

#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::comm {

inline constexpr size_t kMpiPieceBytes = size_t{64} << 10;
inline constexpr uint32_t kMpiWindow = 8;

/// The payload of one MPI message.
struct MpiPiece {
  size_t size = 0;
  size_t read = 0;  ///< Bytes that the channel has read.
  std::array<std::byte, kMpiPieceBytes> data;
};

enum class MpiClose : uint8_t {
  kWrite,  ///< No more writes; bytes written before are still sent.
  kBoth,   ///< No more writes and no more reads; bytes written before are still sent.
  kReset,  ///< No more writes and no more reads; bytes not sent yet are dropped.
};

/// A stream between a channel and an MPI rank. Thread: any.
class MpiPipe {
 public:
  /// `notification`: an eventfd that is written when the condition of Arm becomes true.
  explicit MpiPipe(UniqueFd notification) : notification_(std::move(notification)) {}

  // The channel's side.
  int notification() const { return notification_.get(); }
  /// Writes as many bytes as there is room for and returns how many. Errors: kUnavailable once the
  /// stream has failed or ended.
  Result<size_t> Write(std::span<const iovec> parts) HEDDLE_EXCLUDES(mutex_);
  /// Reads the available bytes and returns how many; 0: none yet. Errors: kUnavailable after the
  /// stream's last byte.
  Result<size_t> Read(std::span<std::byte> buffer) HEDDLE_EXCLUDES(mutex_);
  /// Requests a notification when there are bytes to read or room to write, as wanted. False: there
  /// are already.
  bool Arm(bool want_read, bool want_write) HEDDLE_EXCLUDES(mutex_);
  void Close(MpiClose how) HEDDLE_EXCLUDES(mutex_);

  // The MPI thread's side.
  /// Takes the next piece to send; null: there is none, or the window is used up.
  std::unique_ptr<MpiPiece> TakeOutgoing() HEDDLE_EXCLUDES(mutex_);
  /// Returns true once, when the writing side is closed and all pieces have been taken.
  bool TakeEnd() HEDDLE_EXCLUDES(mutex_);
  /// Number of pieces read since the last call; the peer gets as many credits.
  uint32_t TakeCredits() HEDDLE_EXCLUDES(mutex_);
  /// Delivers a piece from the peer. Errors: kDataLoss (the peer exceeds its window).
  Status Deliver(std::unique_ptr<MpiPiece> piece) HEDDLE_EXCLUDES(mutex_);
  /// Adds credits from the peer. Errors: kDataLoss (more than the window).
  Status AddCredits(uint32_t count) HEDDLE_EXCLUDES(mutex_);
  /// Ends the stream with `reason`, after the pieces delivered before. Calls after the first have
  /// no effect.
  void Fail(const Status& reason) HEDDLE_EXCLUDES(mutex_);

 private:
  bool Readable() const HEDDLE_REQUIRES(mutex_) { return !incoming_.empty() || !failure_.ok(); }
  bool Writable() const HEDDLE_REQUIRES(mutex_);
  void RingIfAwaited() HEDDLE_REQUIRES(mutex_);

  const UniqueFd notification_;
  Mutex mutex_;
  std::deque<std::unique_ptr<MpiPiece>> outgoing_ HEDDLE_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<MpiPiece>> incoming_ HEDDLE_GUARDED_BY(mutex_);
  uint32_t credits_ HEDDLE_GUARDED_BY(mutex_) = kMpiWindow;
  uint32_t consumed_ HEDDLE_GUARDED_BY(mutex_) = 0;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);
  bool want_read_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool want_write_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool abandoned_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool end_taken_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::comm
