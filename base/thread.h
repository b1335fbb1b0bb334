/// \file
/// A named thread that is joined by its destructor. Product code creates threads only through it,
/// so that no thread is detached, and a debugger or `top -H` shows each thread's purpose.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace heddle {

/// Number of cores that this process may run on; at least 1.
int Cores();

/// Requests long time slices for the calling thread, whose work is bulk, so that threads that wake
/// to answer a request run at once and not after it. Its share of the processor does not change. It
/// is a hint, which Linux supports from 6.12 on.
void PreferLongSlices();

/// A thread. Its owner makes its function return (by a flag, a closed queue) before the destructor
/// runs. Thread: one caller at a time.
class Thread {
 public:
  Thread() = default;
  /// Starts `run`. The kernel keeps the first 15 characters of `name`. An exception thrown by `run`
  /// ends the process, as with any std::thread.
  Thread(const std::string& name, std::function<void()> run);
  ~Thread() { Join(); }
  Thread(Thread&& other) noexcept = default;
  /// Joins the thread that is replaced.
  Thread& operator=(Thread&& other) noexcept;

  /// Waits until the function has returned. No effect without a thread or after it was joined.
  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace heddle
