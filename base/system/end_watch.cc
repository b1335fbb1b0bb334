#include "base/system/end_watch.h"

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

void EndWatch::EndWithin(Duration bound, int exit_code) {
  const MutexLock lock(mutex_);
  EndBy(After(bound), exit_code);
}

void EndWatch::EndBy(Time time, int exit_code) {
  if (time < end_by_) {
    end_by_ = time;
    exit_code_ = exit_code;
  }
}

void EndWatch::Run() {
  bool seen = false;
  const MutexLock lock(mutex_);
  while (!ended_) {
    if (!seen && asked_()) {
      seen = true;
      EndBy(After(bound_), 1);
    }
    if (Now() >= end_by_) {
      LogError(
          "asked to end, and something does not in time, as a long step or storage that does not "
          "answer: the process ends as it is, what is stored is whole");
      std::_Exit(exit_code_);
    }
    changed_.WaitUntil(mutex_, After(kLookAgain));
  }
}

}  // namespace heddle
