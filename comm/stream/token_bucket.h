/// \file
/// The emulated link: a token bucket for one direction of a worker's traffic. A sender that finds
/// the bucket out of debt may send a piece and is charged afterwards, so the bucket can go into
/// debt; the next piece waits until the debt is paid. A real link does not pause when the process
/// that feeds it is late. So, while traffic waits, elapsed time is credited in full (up to 0.2 s),
/// and the rate stays exact on a machine whose cores are busy. An idle link accumulates next to
/// nothing. While urgent traffic waits, bulk must leave room for one more piece, so that urgent
/// traffic goes first.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// A token bucket for one direction. Thread: any.
class TokenBucket {
 public:
  /// `idle_credit`: the most time for which an idle link accumulates tokens.
  explicit TokenBucket(Duration idle_credit = std::chrono::microseconds(500))
      : idle_credit_(Seconds(idle_credit)) {}

  /// Changes the rate; 0: unlimited. Clears tokens and debt.
  void SetRate(double bytes_per_second, Time now) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    rate_ = bytes_per_second;
    limited_.store(rate_ > 0, std::memory_order_relaxed);
    tokens_ = 0;
    filled_at_ = now;
  }

  bool limited() const { return limited_.load(std::memory_order_relaxed); }
  /// The current time if the rate is limited, else Time(). Without a vDSO, reading the clock for
  /// each piece costs more than the piece.
  Time NowIfLimited() const { return limited() ? Now() : Time(); }

  /// The earliest time at which a piece of this traffic class may be sent; `now`: at once.
  Time ReadyAt(TrafficClass traffic_class, Time now) HEDDLE_EXCLUDES(mutex_) {
    if (!limited()) {
      return now;
    }
    const MutexLock lock(mutex_);
    if (rate_ <= 0) {
      return now;
    }
    Fill(now);
    const bool holds_back =
        traffic_class == TrafficClass::kBulk && waiting_[IndexOf(TrafficClass::kUrgent)] > 0;
    const double missing = (holds_back ? kPieceSeconds * rate_ : 0) - tokens_;
    return missing <= 0 ? now : now + FromSeconds(missing / rate_);
  }

  /// Largest piece to send at once, at most `unlimited`, so that an urgent message never waits long
  /// behind a piece of bulk.
  size_t PieceBytes(size_t unlimited) HEDDLE_EXCLUDES(mutex_) {
    if (!limited()) {
      return unlimited;
    }
    const MutexLock lock(mutex_);
    if (rate_ <= 0) {
      return unlimited;
    }
    const double piece = std::clamp(rate_ * kPieceSeconds, 2048.0, static_cast<double>(unlimited));
    return static_cast<size_t>(piece);
  }

  /// Counts a stream whose traffic of this class begins (+1) or stops (-1) to wait for the bucket.
  void AddWaiting(TrafficClass traffic_class, int change, Time now) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Fill(now);
    waiting_[IndexOf(traffic_class)] += change;
  }

  /// Charges a piece that was sent.
  void Charge(size_t bytes, Time now) HEDDLE_EXCLUDES(mutex_) {
    if (!limited()) {
      return;
    }
    const MutexLock lock(mutex_);
    if (rate_ > 0) {
      Fill(now);
      tokens_ -= static_cast<double>(bytes);
    }
  }

 private:
  /// The longest time that a sender with waiting traffic may be late without losing rate.
  static constexpr double kLateSeconds = 0.2;
  static constexpr double kPieceSeconds = 0.5e-3;

  void Fill(Time now) HEDDLE_REQUIRES(mutex_) {
    if (now > filled_at_) {
      const bool waited_for = waiting_[0] > 0 || waiting_[1] > 0;
      const double most = rate_ * (waited_for ? kLateSeconds : idle_credit_);
      tokens_ = std::min(tokens_ + Seconds(now - filled_at_) * rate_, most);
      filled_at_ = now;
    }
  }

  const double idle_credit_;  ///< Seconds.
  std::atomic<bool> limited_ = false;
  Mutex mutex_;
  double rate_ HEDDLE_GUARDED_BY(mutex_) = 0;
  double tokens_ HEDDLE_GUARDED_BY(mutex_) = 0;
  Time filled_at_ HEDDLE_GUARDED_BY(mutex_);
  std::array<int, kTrafficClasses> waiting_ HEDDLE_GUARDED_BY(mutex_){};
};

}  // namespace heddle::comm
