#include "comm/stream/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace heddle::comm {

namespace {
/// Bit that is set in the numbers of watches that are called back first.
constexpr uint64_t kFirstBit = uint64_t{1} << 63;
}  // namespace

Result<std::shared_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return ErrnoError(errno, "epoll_create1");
  }
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return ErrnoError(errno, "eventfd");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return ErrnoError(errno, "epoll_ctl");
  }
  std::shared_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake)));
  // The thread borrows: Stop, which the owner of the endpoint calls, joins it before the loop can
  // go.
  EventLoop* borrowed = loop.get();
  loop->thread_ = Thread("comm", [borrowed] {
    borrowed->thread_id_.store(std::this_thread::get_id());
    borrowed->Run();
  });
  return loop;
}

EventLoop::~EventLoop() {
  Stop();
}

uint64_t EventLoop::Add(int fd, uint32_t events, Handler handler, bool first) {
  const MutexLock lock(mutex_);
  const uint64_t watch = next_watch_++ | (first ? kFirstBit : 0);
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  handlers_.emplace(watch, std::make_shared<Handler>(std::move(handler)));
  HEDDLE_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "fd {} errno {}", fd,
               errno);
  return watch;
}

void EventLoop::Modify(uint64_t watch, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  HEDDLE_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0, "fd {} errno {}", fd,
               errno);
}

void EventLoop::Remove(uint64_t watch, int fd) {
  std::shared_ptr<Handler>
      handler;  // Destroyed after the lock is released: it may own what locks again.
  const MutexLock lock(mutex_);
  const auto found = handlers_.find(watch);
  if (found != handlers_.end()) {
    handler = std::move(found->second);
    handlers_.erase(found);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

void EventLoop::Post(std::function<void()> function) {
  {
    const MutexLock lock(mutex_);
    if (stopping_.load()) {
      return;
    }
    posted_.push_back(std::move(function));
  }
  Wake();
}

void EventLoop::RunAt(Time time, std::function<void()> function) {
  {
    const MutexLock lock(mutex_);
    if (stopping_.load()) {
      return;
    }
    timers_.emplace(time, std::move(function));
  }
  if (!OnLoopThread()) {
    Wake();
  }
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // A full counter has already woken the loop.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

Time EventLoop::RunDue() {
  std::vector<std::function<void()>> due;
  {
    const MutexLock lock(mutex_);
    due.swap(posted_);
    const Time now = Now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      due.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
  }
  for (const auto& function : due) {
    function();
  }
  const MutexLock lock(mutex_);
  if (!posted_.empty()) {
    return Now();
  }
  return timers_.empty() ? After(std::chrono::seconds(1)) : timers_.begin()->first;
}

void EventLoop::Call(uint64_t watch, uint32_t events) {
  std::shared_ptr<Handler> handler;
  {
    const MutexLock lock(mutex_);
    const auto found = handlers_.find(watch);
    if (found != handlers_.end()) {
      handler = found->second;
    }
  }
  if (handler != nullptr) {
    (*handler)(events);
  }
}

void EventLoop::Run() {
  std::array<epoll_event, 64> events{};
  while (!stopping_.load()) {
    const Time next = RunDue();  // The clock is read after it: what is due already gets no sleep.
    const Duration left = std::clamp<Duration>(next - Now(), Duration(0), std::chrono::seconds(1));
    const timespec timeout{.tv_sec = left.count() / 1'000'000'000,
                           .tv_nsec = left.count() % 1'000'000'000};
    int count = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               &timeout, nullptr);
    if (count < 0 && errno == ENOSYS) {  // Before Linux 5.11: whole milliseconds, rounded up.
      const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           static_cast<int>(milliseconds));
    }
    for (const bool first : {true, false}) {
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<size_t>(i)];
        if (((event.data.u64 & kFirstBit) != 0) != first) {
          continue;
        }
        if (event.data.u64 == 0) {
          uint64_t drained = 0;
          [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof(drained));
        } else {
          Call(event.data.u64, event.events);
        }
      }
    }
  }
}

void EventLoop::Stop() {
  stopping_.store(true);
  Wake();
  thread_.Join();
  std::unordered_map<uint64_t, std::shared_ptr<Handler>> handlers;
  std::vector<std::function<void()>> posted;
  std::multimap<Time, std::function<void()>> timers;
  const MutexLock lock(mutex_);
  handlers.swap(handlers_);
  posted.swap(posted_);
  timers.swap(timers_);
}

}  // namespace heddle::comm
