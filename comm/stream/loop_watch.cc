#include "comm/stream/loop_watch.h"

#include <utility>

namespace heddle::comm {

namespace {
/// Duration of a lease. After a caller drove, the loop leaves the channel alone for a moment,
/// because the next operation often follows at once. Twice this bounds how long a message lies
/// unseen for which no thread waits.
constexpr Duration kLease = std::chrono::microseconds(500);
}  // namespace

void LoopWatch::Start(std::weak_ptr<Watched> watched) {
  watched_ = std::move(watched);
  started_ = true;
}

void LoopWatch::RunAt(Time time) {
  if (time < run_at_) {
    run_at_ = time;
    loop_->RunAt(time, [watched = watched_, time] {
      if (const auto channel = watched.lock()) {
        channel->HandleTimer(time);
      }
    });
  }
}

bool LoopWatch::TakeTimer(Time time) {
  if (run_at_ != time) {
    return false;
  }
  run_at_ = Time::max();
  return true;
}

void LoopWatch::Rearm(Connection& connection, bool want_read, bool want_write) {
  const auto wanted = connection.Watches(want_read, want_write);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Registered& watch = watches_[i];
    if (wanted[i].fd < 0) {
      continue;
    }
    if (watch.watch == 0) {
      watch.fd = wanted[i].fd;
      watch.events = wanted[i].events;
      const auto handler = [watched = watched_, fd = watch.fd](uint32_t events) {
        if (const auto channel = watched.lock()) {
          channel->HandleReady(fd, events);
        }
      };
      watch.watch = loop_->Add(watch.fd, watch.events, handler, first_);
    } else if (watch.events != wanted[i].events) {
      watch.events = wanted[i].events;
      loop_->Modify(watch.watch, watch.fd, watch.events);
    }
  }
}

void LoopWatch::Unwatch() {
  for (Registered& watch : watches_) {
    if (watch.watch != 0) {
      loop_->Remove(watch.watch, watch.fd);
      watch = Registered{};
    }
  }
}

bool LoopWatch::BeginDrive() {
  const bool was_held = HeldByCaller();
  driven_ = true;
  leased_until_ = Time();
  return !was_held;
}

void LoopWatch::EndDrive(bool lease) {
  driven_ = false;
  if (!lease) {
    return;
  }
  leased_until_ = After(kLease);
  if (run_at_ > leased_until_ + kLease) {  // To wake the loop for each would cost more.
    RunAt(leased_until_);
  }
}

void LoopWatch::EndLeaseIfOver() {
  if (!driven_ && leased_until_ <= Now()) {
    leased_until_ = Time();
  }
}

}  // namespace heddle::comm
