/// \file
/// The four streams of a card, and what is under way in them: events that mark a point of a
/// stream, tensors that copies still use, and works whose time counts. The first error is kept,
/// because after it the card computes nothing right any more.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/runtime/device/device.h"

struct CUevent_st;   // cudaEvent_t is a pointer to it,
struct CUstream_st;  // and cudaStream_t to this.

namespace heddle::runtime::cuda {

enum class Queue : uint8_t { kCompute, kDown, kUp, kPeers };
inline constexpr size_t kQueues = 4;

/// A point of a stream. Empty: it could not be recorded.
using Event = std::shared_ptr<CUevent_st>;

/// Holds a stream back. Thread: any.
class Gate {
 public:
  void Open() HEDDLE_EXCLUDES(mutex_);
  /// Returns when it is open, or after kLongestHold.
  void Await() HEDDLE_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ HEDDLE_GUARDED_BY(mutex_) = false;
};
/// A piece of work that waits for the card while it is held back would wait for ever.
inline constexpr Duration kLongestHold = std::chrono::milliseconds(200);

/// Thread: any; BeginWork and EndWork from the one that computes.
class Queues : public std::enable_shared_from_this<Queues> {
 public:
  /// What a copy uses while it runs.
  struct Kept {
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<void>> memory;
  };

  /// Makes the streams on CUDA's card `ordinal`. `count` hears of the time of each counted work
  /// once it has ended, until Close.
  Queues(int ordinal, std::function<void(Duration)> count);
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  int ordinal() const { return ordinal_; }
  CUstream_st* stream(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }
  /// Makes the card that of the calling thread, as calls of CUDA need it.
  void Use() const;

  /// Records the error of a call of CUDA; true if there is none.
  bool Try(int code, std::string_view call);
  void Fail(Status status) HEDDLE_EXCLUDES(mutex_);
  /// The first error.
  Status status() const HEDDLE_EXCLUDES(mutex_);

  /// What is queued in `later` from now on runs after all that is in `earlier`.
  void Follow(Queue later, Queue earlier);
  /// The same for what comes before `event`.
  void Await(Queue later, const Event& event);
  /// A mark behind all that is in the queue. `kept` lives until it has ended.
  Mark MarkOf(Queue queue, Kept kept) HEDDLE_EXCLUDES(mutex_);

  /// The work that is queued between the two counts.
  void BeginWork();
  void EndWork() HEDDLE_EXCLUDES(mutex_);

  /// Holds back what is queued to compute from now on until the result is opened, for kLongestHold
  /// at most: the card then runs it without waiting for the host between two pieces.
  std::shared_ptr<Gate> HoldCompute();
  /// A point of the compute queue whose time counts, and the time between two that have ended.
  Event Point() { return Record(Queue::kCompute, Timed::kYes); }
  Duration Between(const Event& begin, const Event& end);

  /// Lets go of what ended copies used, and counts the works that have ended.
  void Harvest() HEDDLE_EXCLUDES(mutex_);
  /// True if `event` has ended, or never will.
  bool Ended(const Event& event);
  /// Blocks until `event` has ended. Errors: kDeadlineExceeded, the card's.
  Status Wait(const Event& event, Deadline deadline);
  /// The same for all that is queued.
  Status Drain(Deadline deadline);
  /// Counts nothing any more.
  void Close() HEDDLE_EXCLUDES(mutex_);

 private:
  enum class Timed : uint8_t { kNo, kYes };
  struct Copy {
    Event end;
    Kept kept;
  };
  struct Work {
    Event begin;
    Event end;
  };
  using FreeEvents = std::array<std::vector<CUevent_st*>, 2>;

  Event Record(Queue queue, Timed timed) HEDDLE_EXCLUDES(mutex_);
  Event NewEvent(Timed timed) HEDDLE_EXCLUDES(mutex_);
  bool HasEnded(const Event& event);
  void Nap(int round);

  const int ordinal_;
  std::array<CUstream_st*, kQueues> streams_{};
  Event begun_;  ///< Of the work that is being queued.
  mutable Mutex mutex_;
  CondVar never_;  ///< Nobody tells of an event: who waits looks again.
  Status status_ HEDDLE_GUARDED_BY(mutex_);
  std::function<void(Duration)> count_ HEDDLE_GUARDED_BY(mutex_);
  std::array<std::deque<Copy>, kQueues> copies_ HEDDLE_GUARDED_BY(mutex_);
  std::deque<Work> works_ HEDDLE_GUARDED_BY(mutex_);
  FreeEvents free_ HEDDLE_GUARDED_BY(mutex_);  ///< By whether they have a time.
};

/// The event of a mark that Queues made; empty for a mark that has ended from the start.
Event EventOf(const Mark& mark);

}  // namespace heddle::runtime::cuda
