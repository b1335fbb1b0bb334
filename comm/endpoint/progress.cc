#include "comm/endpoint/progress.h"

#include <utility>

namespace heddle::comm {

void Progress::Call::Run() {
  {
    const MutexLock lock(mutex_);
    if (!given_up_.ok()) {
      return;  // Completed by Cancel.
    }
    begun_ = true;
  }
  const Status status = run_();
  Status given_up;
  {
    const MutexLock lock(mutex_);
    finished_ = true;
    given_up = given_up_;
  }
  Complete(given_up.ok() ? status : given_up);
}

void Progress::Call::Cancel(const Status& status) {
  bool begun = false;
  bool finished = false;
  {
    const MutexLock lock(mutex_);
    begun = begun_;
    finished = finished_;
    if (!finished && given_up_.ok()) {
      given_up_ = status;
    }
  }
  if (!finished) {  // Otherwise it is about to complete, in time after all.
    group_->Abort(status);
  }
  if (!begun) {
    Complete(status);
    return;
  }
  // Abort ends every wait of the call; then its buffers are the caller's again.
  while (!WaitUntil(After(std::chrono::seconds(1)))) {
  }
}

Progress::~Progress() {
  std::deque<std::shared_ptr<Call>> queue;
  std::vector<Thread> threads;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    queue.swap(queue_);
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (const auto& call : queue) {
    call->Complete(CancelledError("the communicator was closed"));
  }
}

std::shared_ptr<Work::State> Progress::Start(std::function<Status()> run) {
  auto call = std::make_shared<Call>(group_, std::move(run));
  const MutexLock lock(mutex_);
  queue_.push_back(call);
  if (queue_.size() > idle_ && threads_.size() < kMaxThreads) {
    threads_.emplace_back(
        traffic_class_ == TrafficClass::kUrgent ? "heddle-urgent" : "heddle-progress",
        [this] { Serve(); });
  }
  changed_.NotifyOne();
  return call;
}

void Progress::Serve() {
  if (traffic_class_ == TrafficClass::kBulk) {
    PreferLongSlices();
  }
  while (true) {
    std::shared_ptr<Call> call;
    {
      const MutexLock lock(mutex_);
      ++idle_;
      while (queue_.empty() && !closed_) {
        changed_.WaitUntil(mutex_, After(std::chrono::seconds(1)));
      }
      --idle_;
      if (queue_.empty()) {
        return;
      }
      call = std::move(queue_.front());
      queue_.pop_front();
    }
    call->Run();
  }
}

}  // namespace heddle::comm
