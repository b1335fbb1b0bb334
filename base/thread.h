/// \file
/// A named thread that is joined by its destructor. Product code makes threads only through it:
/// nothing is detached, and a debugger or `top -H` shows what each thread is for.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace heddle {

/// Cores that this process may run on; at least 1.
int Cores();

/// Asks the kernel for long time slices for the calling thread, whose work is bulk: threads that
/// wake to answer someone then run at once and not after it. Its share of the processor stays the
/// same. A hint: Linux knows it from 6.12 on.
void PreferLongSlices();

/// Whoever owns a Thread tells its function to end (a flag, a closed queue) before the destructor
/// runs. Thread: one caller at a time.
class Thread {
 public:
  Thread() = default;
  /// Starts `run`. The kernel keeps the first 15 characters of `name`. An exception out of `run`
  /// ends the process, as out of any std::thread.
  Thread(const std::string& name, std::function<void()> run);
  ~Thread() { Join(); }
  Thread(Thread&& other) noexcept = default;
  /// Joins the thread that is replaced.
  Thread& operator=(Thread&& other) noexcept;

  /// Waits until the function has returned; fine when there is none or it was joined before.
  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace heddle
