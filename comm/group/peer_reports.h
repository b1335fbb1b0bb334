/// \file
/// Reports that members send each other about waits that last: the call in which they wait, and the
/// member that delays it. A report is a frame of kind kWaiting (frame.h) on the urgent traffic
/// class.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/message/receiver.h"
#include "comm/message/work.h"
#include "comm/stream/frame.h"

namespace heddle::comm {

/// The waits of this worker that last and are being diagnosed. Thread: any.
class LastingWaits {
 public:
  /// Registers `wait` while it lives, so that Nudge ends a WaitNudged of it early.
  class Entry {
   public:
    Entry(LastingWaits& waits, Work::State& wait) : waits_(waits), wait_(wait) {
      const MutexLock lock(waits_.mutex_);
      waits_.waits_.push_back(&wait_);
    }
    ~Entry() {
      const MutexLock lock(waits_.mutex_);
      std::erase(waits_.waits_, &wait_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    LastingWaits& waits_;
    Work::State& wait_;
  };

  /// Nudges all registered waits, because a peer has sent a new report.
  void Nudge() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (Work::State* const wait : waits_) {
      wait->Nudge();
    }
  }

 private:
  Mutex mutex_;  ///< Taken while a channel's lock is held.
  std::vector<Work::State*> waits_ HEDDLE_GUARDED_BY(mutex_);
};

/// The reports exchanged between one peer and this worker. Thread: any.
class PeerReports final : public WaitReports {
 public:
  /// A report with new content nudges `lasting`.
  explicit PeerReports(std::shared_ptr<LastingWaits> lasting) : lasting_(std::move(lasting)) {}

  // The peer's reports.
  void OnReport(const FrameHeader& report) override { Note(report, Now()); }
  void Note(const FrameHeader& report, Time now) HEDDLE_EXCLUDES(mutex_);
  struct Wait {
    /// The peer has reported recently that it waits in this call or an earlier one, or it has
    /// reported that it gave up such a wait.
    bool waits = false;
    int blamed = -1;   ///< Rank that the peer believes to delay its wait; -1: none is known.
    int distance = 0;  ///< Number of waits from the peer to `blamed`.
  };
  /// The peer's wait that matters to this worker's wait in `call`.
  Wait WaitIn(const CallNumber& call, Time now) const HEDDLE_EXCLUDES(mutex_);
  /// The signature of the call that the peer last reported for the tag and group of `call`, if it
  /// has the same ordinal and another signature; else nullopt.
  std::optional<uint32_t> FindOtherCall(const CallNumber& call) const HEDDLE_EXCLUDES(mutex_);

  /// The report of this worker's wait in `call` that is to be sent to the peer now. nullopt: the
  /// peer got the same report recently; or the wait is not for the peer (`for_peer`), has not been
  /// given up, and the peer has reported no wait of that tag and group.
  std::optional<FrameHeader> NextReport(const CallNumber& call, bool for_peer, Time now)
      HEDDLE_EXCLUDES(mutex_);

 private:
  /// A reported wait, and the time at which the report was sent or received.
  struct Said {
    CallNumber call;
    Time at;
  };
  /// The peer's last report for the tag and group of `call`; null: none.
  const Said* HeardOf(const CallNumber& call) const HEDDLE_REQUIRES(mutex_);

  const std::shared_ptr<LastingWaits> lasting_;
  mutable Mutex mutex_;                               ///< Taken while a channel's lock is held.
  std::deque<Said> heard_ HEDDLE_GUARDED_BY(mutex_);  ///< Reports of the peer, latest last.
  /// Reports sent to the peer recently; at most one for each pair of tag and group.
  std::vector<Said> notified_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
