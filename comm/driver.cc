#include "comm/driver.h"

#include <algorithm>
#include <array>

#include <poll.h>
#include <sched.h>

#include "comm/channel.h"

namespace heddle::comm {

namespace {

/// Looking at more connections in turn costs more than a hop between threads.
constexpr size_t kMostDriven = 16;
/// How long a wait keeps its core after the last byte: about what a message on a fast link takes.
constexpr Duration kSpin = std::chrono::microseconds(50);
/// A sleep on the sockets is looked up from as often; it bounds how late an abort is seen.
constexpr Duration kSlice = std::chrono::milliseconds(1);
/// A wait that is this long without a byte goes back to the loop: slices cost something, too.
constexpr Duration kIdle = std::chrono::milliseconds(20);

}  // namespace

void Driver::Add(const std::shared_ptr<Channel>& channel) {
  const MutexLock lock(mutex_);
  channels_.push_back(channel);
}

void Driver::Drive(const Work::State& operation, Deadline deadline) {
  if (driving_.exchange(true)) {
    followers_.fetch_add(1);
    return;
  }
  std::array<std::shared_ptr<Channel>, kMostDriven> channels;
  size_t count = 0;
  bool few = false;
  {
    const MutexLock lock(mutex_);
    few = channels_.size() <= kMostDriven;
    for (size_t i = 0; few && i < channels_.size(); ++i) {
      if (auto channel = channels_[i].lock(); channel != nullptr) {
        channels[count++] = std::move(channel);
      }
    }
  }
  Time now = Now();
  Time until = now + kSpin;
  while (few && !operation.Done() && now < deadline) {
    bool moved = false;
    bool may_sleep = true;
    bool may_spin = true;
    std::array<pollfd, kMostDriven> sockets{};
    size_t watched = 0;
    for (size_t i = 0; i < count && !operation.Done(); ++i) {
      const Channel::Look look = channels[i]->DriveOnce(operation, now);
      if (look.in_use) {
        moved = moved || look.moved;
        may_spin = may_spin && channels[i]->options().may_spin;
        may_sleep = may_sleep && look.fd >= 0;
        sockets[watched++] = {.fd = look.fd, .events = look.events, .revents = 0};
      }
    }
    now = Now();
    if (moved) {
      until = now + kSpin;
    } else if (watched == 0) {
      break;  // A connection that the loop has to see to.
    } else if (now >= until) {
      if (!may_sleep || now >= until + kIdle) {
        break;
      }
      const Duration slice = std::min<Duration>(kSlice, std::max<Duration>(deadline - now, {}));
      const timespec timeout{.tv_sec = 0, .tv_nsec = slice.count()};
      ::ppoll(sockets.data(), watched, &timeout, nullptr);
      now = Now();
    } else if (!may_spin) {
      ::sched_yield();
    }
  }
  // Nobody else is to wait for the end of the lease.
  const bool keep = operation.Done() && followers_.exchange(0) == 0;
  for (size_t i = 0; i < count; ++i) {
    channels[i]->EndDrive(keep);
  }
  driving_.store(false);
}

}  // namespace heddle::comm
