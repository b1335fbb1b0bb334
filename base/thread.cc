#include "base/thread.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace heddle {

int Cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

namespace {

/// As the kernel has it since 3.14; the C library has none.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  ///< Nanoseconds; of an ordinary thread: the slice it asks for.
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void PreferLongSlices() {
  // Several times what a thread gets unasked; the kernel takes up to 100 ms.
  constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(20);
  SchedulingAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 ||
      attributes.policy != SCHED_OTHER) {
    return;
  }
  attributes.size = sizeof(attributes);
  attributes.runtime = static_cast<uint64_t>(kSlice.count());
  // A refusal leaves the thread as it is.
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

Thread::Thread(const std::string& name, std::function<void()> run)
    : thread_([short_name = name.substr(0, 15), run = std::move(run)] {
        pthread_setname_np(pthread_self(), short_name.c_str());
        run();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    Join();
    thread_ = std::move(other.thread_);
  }
  return *this;
}

void Thread::Join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace heddle
