#include "comm/message/driver.h"

#include <algorithm>
#include <array>

#include <poll.h>
#include <sched.h>

#include "comm/message/channel.h"

namespace heddle::comm {

namespace {

/// The most channels of a driver; to poll more in turn costs more than a hop between threads.
constexpr size_t kMaxDriven = 16;
/// How long a wait keeps its core after the last byte: about what a message on a fast link takes.
constexpr Duration kSpin = std::chrono::microseconds(50);
/// How long a wait yields instead if there is not a core for each member here: one of them may be
/// sending the message, and to be woken costs more than to poll again.
constexpr Duration kYield = std::chrono::microseconds(200);
/// Longest sleep on the sockets; it bounds the delay until an abort is seen.
constexpr Duration kSlice = std::chrono::milliseconds(1);
/// A wait that is this long without a byte goes back to the loop: slices cost something, too.
constexpr Duration kIdle = std::chrono::milliseconds(20);

}  // namespace

void Driver::Add(const std::shared_ptr<Channel>& channel) {
  const MutexLock lock(mutex_);
  channels_.push_back(channel);
}

void Driver::Drive(const Work::State& operation, Patience patience, Deadline deadline) {
  if (driving_.exchange(true)) {
    return;
  }
  std::array<std::shared_ptr<Channel>, kMaxDriven> channels;
  size_t count = 0;
  bool few = false;
  {
    const MutexLock lock(mutex_);
    few = channels_.size() <= kMaxDriven;
    for (size_t i = 0; few && i < channels_.size(); ++i) {
      if (auto channel = channels_[i].lock(); channel != nullptr) {
        channels[count++] = std::move(channel);
      }
    }
  }
  Time now = Now();
  Time moved_at = now;
  std::array<bool, kMaxDriven> woken{};
  while (few && !operation.Done() && now < deadline) {
    bool moved = false;
    bool may_sleep = true;
    bool may_spin = true;
    std::array<pollfd, kMaxDriven> sleep_on{};
    std::array<size_t, kMaxDriven> used{};
    size_t watched = 0;
    for (size_t i = 0; i < count && !operation.Done(); ++i) {
      const Channel::Look look = channels[i]->DriveOnce(operation, woken[i], now);
      woken[i] = false;
      if (look.in_use) {
        moved = moved || look.moved;
        may_spin = may_spin && channels[i]->options().may_spin;
        may_sleep = may_sleep && look.sleep_on.fd >= 0;
        sleep_on[watched] = {.fd = look.sleep_on.fd,
                             .events = static_cast<short>(look.sleep_on.events),
                             .revents = 0};
        used[watched++] = i;
      }
    }
    if (watched == 0) {
      break;  // A connection that the loop has to see to.
    }
    now = Now();
    if (moved) {
      moved_at = now;
    } else if (patience == Patience::kSpin && now < moved_at + (may_spin ? kSpin : kYield)) {
      if (!may_spin) {
        ::sched_yield();
      }
    } else if (!may_sleep || now >= moved_at + kIdle) {
      break;
    } else if (std::all_of(used.begin(), used.begin() + watched,
                           [&](size_t i) { return channels[i]->PrepareToSleep(); })) {
      const Duration slice = std::min<Duration>(kSlice, std::max<Duration>(deadline - now, {}));
      const timespec timeout{.tv_sec = 0, .tv_nsec = slice.count()};
      ::ppoll(sleep_on.data(), watched, &timeout, nullptr);
      for (size_t i = 0; i < watched; ++i) {
        woken[used[i]] = sleep_on[i].revents != 0;
      }
      now = Now();
    }
  }
  // A wait that sleeps must not have to wait for the end of the lease.
  const bool keep = operation.Done() && asleep_.load() == 0;
  for (size_t i = 0; i < count; ++i) {
    channels[i]->EndDrive(keep);
  }
  driving_.store(false);
}

}  // namespace heddle::comm
