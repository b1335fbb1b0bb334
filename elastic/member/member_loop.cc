#include "elastic/member/member_loop.h"

#include <deque>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"

namespace heddle::elastic {

class MemberLoop::Impl {
 public:
  Impl(Member member, MemberHost& host) : member_(std::move(member)), host_(host) {
    thread_ = Thread("member", [this] { Run(); });
  }

  void Post(MemberEvent event) {
    const MutexLock lock(mutex_);
    if (!stopped_) {
      queue_.push_back(std::move(event));
      wake_.NotifyOne();
    }
  }

  void Stop() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      wake_.NotifyOne();
    }
    thread_.Join();
  }

 private:
  // Bounds every wait, also when nothing is due.
  static constexpr Duration kLongestWait = std::chrono::seconds(1);

  void Run() {
    while (true) {
      std::deque<MemberEvent> events;
      {
        const MutexLock lock(mutex_);
        const Time limit = Now() + kLongestWait;
        const Time until = std::min(member_.NextDeadline().value_or(limit), limit);
        while (queue_.empty() && !stopped_ && Now() < until) {
          wake_.WaitUntil(mutex_, until);
        }
        if (stopped_) {
          return;
        }
        events.swap(queue_);
      }
      for (const MemberEvent& event : events) {
        Handle(event);
      }
      const std::optional<Time> next = member_.NextDeadline();
      if (next && Now() >= *next) {
        Handle(host_.Tick());
      }
    }
  }

  void Handle(const MemberEvent& event) {
    for (const MemberAction& action : member_.Handle(event, Now())) {
      host_.Perform(action);
    }
  }

  // Loop thread only.
  Member member_;
  MemberHost& host_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<MemberEvent> queue_ HEDDLE_GUARDED_BY(mutex_);
  bool stopped_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

MemberLoop::MemberLoop(Member member, MemberHost& host)
    : impl_(std::make_unique<Impl>(std::move(member), host)) {}
MemberLoop::~MemberLoop() {
  Stop();
}
void MemberLoop::Post(MemberEvent event) {
  impl_->Post(std::move(event));
}
void MemberLoop::Stop() {
  impl_->Stop();
}

}  // namespace heddle::elastic
