#include "base/system/end_watch.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace heddle {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(50);  // A signal notifies nobody.

}  // namespace

EndWatch::EndWatch(std::function<bool()> asked, Duration bound)
    : asked_(std::move(asked)),
      bound_(bound),
      thread_("end-watch", [this] { Run(); }) {}

EndWatch::~EndWatch() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void EndWatch::EndWithin(Duration bound) {
  const MutexLock lock(mutex_);
  end_by_ = std::min(end_by_, After(bound));
}

void EndWatch::Run() {
  bool seen = false;
  const MutexLock lock(mutex_);
  while (!ended_) {
    if (!seen && asked_()) {
      seen = true;
      end_by_ = std::min(end_by_, After(bound_));
    }
    if (Now() >= end_by_) {
      LogError(
          "asked to end, and something does not: most likely storage that does not answer; "
          "the process ends as it is, what is stored is whole");
      std::_Exit(1);
    }
    changed_.WaitUntil(mutex_, After(kLookAgain));
  }
}

}  // namespace heddle
