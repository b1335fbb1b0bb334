/// \file
/// The stream between a channel and one MPI rank, seen from both sides: the channel writes and
/// reads bytes, the MPI thread takes and delivers pieces. A sender has at most kWindow pieces that
/// the other channel has not read, so the memory of both sides is bounded whatever MPI buffers.
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
  size_t read = 0;  ///< Of it, by the channel.
  std::array<std::byte, kMpiPieceBytes> data;
};

enum class MpiClose : uint8_t {
  kWrite,  ///< No more writes; what was written is still sent.
  kBoth,   ///< Nor will anything be read.
  kReset,  ///< And what was not sent is dropped.
};

/// Thread: any.
class MpiPipe {
 public:
  /// `notification`: an eventfd, written when what the channel waits for has come.
  explicit MpiPipe(UniqueFd notification) : notification_(std::move(notification)) {}

  // The channel's side.
  int notification() const { return notification_.get(); }
  /// Takes what there is room for. Errors: kUnavailable once the stream has failed or ended.
  Result<size_t> Write(std::span<const iovec> parts) HEDDLE_EXCLUDES(mutex_);
  /// Gives what is there, 0 when nothing. Errors: kUnavailable after the stream's last byte.
  Result<size_t> Read(std::span<std::byte> buffer) HEDDLE_EXCLUDES(mutex_);
  /// Asks for a notification; false when what is wanted is there already.
  bool Arm(bool want_read, bool want_write) HEDDLE_EXCLUDES(mutex_);
  void Close(MpiClose how) HEDDLE_EXCLUDES(mutex_);

  // The MPI thread's side.
  /// The next piece to send, if the window allows one.
  std::unique_ptr<MpiPiece> TakeOutgoing() HEDDLE_EXCLUDES(mutex_);
  /// True once: everything written has been taken and there is nothing more to come.
  bool TakeEnd() HEDDLE_EXCLUDES(mutex_);
  /// Pieces read since the last call: the peer gets as many credits.
  uint32_t TakeCredits() HEDDLE_EXCLUDES(mutex_);
  /// Errors: kDataLoss (the peer overran its window); so for AddCredits.
  Status Deliver(std::unique_ptr<MpiPiece> piece) HEDDLE_EXCLUDES(mutex_);
  Status AddCredits(uint32_t count) HEDDLE_EXCLUDES(mutex_);
  /// The stream ends with `reason`, after what was delivered. The first call counts.
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
