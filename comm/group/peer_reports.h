/// \file
/// What members say to each other of waits that last: in which call, and who holds it up. A report
/// is a frame of kind kWaiting (frame.h) on the urgent traffic class.
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

/// The waits of this worker that last and look for their reason. Thread: any.
class LastingWaits {
 public:
  /// As long as it lives, news ends a WaitNudged of `wait`.
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

  /// A peer has said something new.
  void Nudge() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (Work::State* const wait : waits_) {
      wait->Nudge();
    }
  }

 private:
  Mutex mutex_;  ///< Taken while a channel's is held.
  std::vector<Work::State*> waits_ HEDDLE_GUARDED_BY(mutex_);
};

/// What one peer and this worker said to each other. Thread: any.
class PeerReports final : public WaitReports {
 public:
  /// `lasting` is nudged by news.
  explicit PeerReports(std::shared_ptr<LastingWaits> lasting) : lasting_(std::move(lasting)) {}

  // What the peer said.
  void OnReport(const FrameHeader& report) override { Note(report, Now()); }
  void Note(const FrameHeader& report, Time now) HEDDLE_EXCLUDES(mutex_);
  struct Wait {
    /// The peer waits in this call or one before, as it said just now, or it has given up,
    bool waits = false;
    int blamed = -1;   ///< and for this rank, as it believes; -1: it does not say.
    int distance = 0;  ///< Waits from the peer to there.
  };
  Wait WaitIn(const CallNumber& call, Time now) const HEDDLE_EXCLUDES(mutex_);
  /// The signature of the call that the peer said it waits in, if that is another in place of
  /// `call`.
  std::optional<uint32_t> FindOtherCall(const CallNumber& call) const HEDDLE_EXCLUDES(mutex_);

  /// A wait in `call` lasts: the report that the peer is to get now, and of call.blamed; none when
  /// it has heard the same just now, or unless the wait is for the peer (`for_peer`), the peer
  /// waits, too, or the wait has been given up.
  std::optional<FrameHeader> NextReport(const CallNumber& call, bool for_peer, Time now)
      HEDDLE_EXCLUDES(mutex_);

 private:
  /// A call that one of the two waits in, and when the other heard of it.
  struct Said {
    CallNumber call;
    Time at;
  };
  /// What the peer said last of its calls with this tag among this group; null: nothing.
  const Said* HeardOf(const CallNumber& call) const HEDDLE_REQUIRES(mutex_);

  const std::shared_ptr<LastingWaits> lasting_;
  mutable Mutex mutex_;                               ///< Taken while a channel's is held.
  std::deque<Said> heard_ HEDDLE_GUARDED_BY(mutex_);  ///< The latest last.
  /// Of the last moments; one of each tag and group.
  std::vector<Said> notified_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
