#include "base/thread.h"

#include <utility>

#include <pthread.h>
#include <sched.h>

namespace heddle {

int Cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
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
