/// \file
/// The progress threads of a communicator, which run the started collectives of one traffic class,
/// up to four at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/group/group.h"
#include "comm/message/work.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

/// The progress threads of a communicator for the calls of a traffic class. Thread: any.
class Progress {
 public:
  Progress(std::shared_ptr<Group> group, TrafficClass traffic_class)
      : group_(std::move(group)),
        traffic_class_(traffic_class) {}
  /// Cancels the calls that have not begun (kCancelled) and waits for those that have. The group
  /// must have ended before.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Queues `run` for a progress thread; see Communicator::Start.
  std::shared_ptr<Work::State> Start(std::function<Status()> run) HEDDLE_EXCLUDES(mutex_);

 private:
  /// A started call. Cancelling it, as a wait does at its deadline, aborts the group, because a
  /// collective that one member gave up cannot succeed at the others.
  class Call : public Work::State {
   public:
    Call(std::shared_ptr<Group> group, std::function<Status()> run)
        : State(group->options().operation_timeout),
          group_(std::move(group)),
          run_(std::move(run)) {}

    void Run() HEDDLE_EXCLUDES(mutex_);
    void Cancel(const Status& status) override HEDDLE_EXCLUDES(mutex_);
    std::string Describe() const override { return "running a collective that was started"; }

   private:
    const std::shared_ptr<Group> group_;
    const std::function<Status()> run_;
    Mutex mutex_;
    bool begun_ HEDDLE_GUARDED_BY(mutex_) = false;
    bool finished_ HEDDLE_GUARDED_BY(mutex_) = false;
    Status given_up_ HEDDLE_GUARDED_BY(mutex_);
  };
  static constexpr size_t kMaxThreads = 4;

  void Serve() HEDDLE_EXCLUDES(mutex_);

  const std::shared_ptr<Group> group_;
  const TrafficClass traffic_class_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Call>> queue_ HEDDLE_GUARDED_BY(mutex_);
  size_t idle_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
