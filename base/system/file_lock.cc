#include "base/system/file_lock.h"

#include <cerrno>

#include <sys/file.h>

#include "base/mutex.h"

namespace heddle {

Status LockWithin(const UniqueFd& fd, const std::string& name, Duration longest) {
  const Deadline deadline = After(longest);
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return ErrnoError(errno, "lock " + name);
    }
    if (Now() >= deadline) {
      return UnavailableError("{} is locked by another process for more than {} s", name,
                              Seconds(longest));
    }
    // flock() has no timeout and no event to wait for: ask again.
    never.WaitUntil(mutex, After(std::chrono::milliseconds(2)));
  }
  return Status::Ok();
}

}  // namespace heddle
