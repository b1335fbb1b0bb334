/// \file
/// The eager window: how many bytes of small messages may lie unmatched at a receiver. The sender
/// spends it, the receiver frees it as messages are matched and tells of it in a few large credits.
/// Each end keeps its own account, and an account that does not add up is noticed at once: what the
/// peer claims too much breaks the connection, what this end frees too much is a broken invariant.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/status.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// The sender's account. Thread: its channel's lock.
class EagerCredit {
 public:
  /// Takes `cost` out of the window; false: it has not that much room now.
  bool Spend(size_t cost) {
    if (!CanSpend(cost)) {
      return false;
    }
    left_ -= cost;
    return true;
  }
  bool CanSpend(size_t cost) const { return cost <= left_; }
  /// The receiver has freed `bytes`. Errors: kDataLoss (more than was spent).
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

/// The receiver's account. Thread: its channel's lock.
class EagerWindow {
 public:
  /// A message of `cost` begins. Errors: kDataLoss (the sender has not that much window).
  Status Take(size_t cost) {
    if (cost > kEagerWindow - taken_) {
      return DataLossError("more eager bytes than the window has");
    }
    taken_ += cost;
    return Status::Ok();
  }
  /// A message of `cost` has been matched, or dropped. Returns the credit that the sender is to be
  /// told of now; 0: later.
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
  /// Cost of the messages that lie here unmatched, or are arriving.
  size_t held() const { return taken_ - freed_; }

 private:
  size_t taken_ = 0;  ///< Window that the sender has used and not got back.
  size_t freed_ = 0;  ///< Of it, free but not yet told.
};

}  // namespace heddle::comm
