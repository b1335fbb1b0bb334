/// \file
/// The eager window: the bytes of small messages that may lie unmatched at a receiver. The sender
/// spends the window; the receiver frees it as messages are matched, and returns it in a few large
/// credits. Each end keeps its own account, so that an error is detected at once: if the peer
/// claims too much, the connection breaks; if this end frees too much, an invariant is broken.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/status.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// The sender's account. Thread: guarded by its channel's lock.
class EagerCredit {
 public:
  /// Takes `cost` bytes out of the window. False: the window has less room now.
  bool Spend(size_t cost) {
    if (!CanSpend(cost)) {
      return false;
    }
    left_ -= cost;
    return true;
  }
  bool CanSpend(size_t cost) const { return cost <= left_; }
  /// Adds a credit of `bytes` from the receiver. Errors: kDataLoss (more than was spent).
  Status Return(uint64_t bytes) {
    if (bytes > kEagerWindow - left_) {
      return DataLossError("credit of {} bytes that were never used", bytes);
    }
    left_ += bytes;
    return Status::Ok();
  }
  size_t left() const { return left_; }

 private:
  size_t left_ = kEagerWindow;
};

/// The receiver's account. Thread: guarded by its channel's lock.
class EagerWindow {
 public:
  /// Takes `cost` bytes for a message that begins to arrive. Errors: kDataLoss (the sender exceeds
  /// its window).
  Status Take(size_t cost) {
    if (cost > kEagerWindow - taken_) {
      return DataLossError("more eager bytes than the window has");
    }
    taken_ += cost;
    return Status::Ok();
  }
  /// Frees the `cost` bytes of a message that has been matched or dropped. Returns the credit to
  /// send to the sender now; 0: none yet.
  [[nodiscard]] size_t Free(size_t cost) {
    HEDDLE_CHECK(cost <= held(), "{} bytes freed of {} held", cost, held());
    freed_ += cost;
    if (freed_ < kEagerWindow / 4) {
      return 0;
    }
    const size_t credit = freed_;
    taken_ -= credit;
    freed_ = 0;
    return credit;
  }
  /// Cost of the messages that are arriving or lie here unmatched.
  size_t held() const { return taken_ - freed_; }

 private:
  size_t taken_ = 0;  ///< Bytes that the sender has spent and not got back.
  size_t freed_ = 0;  ///< Bytes of `taken_` that are free but not returned yet.
};

}  // namespace heddle::comm
