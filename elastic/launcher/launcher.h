/// \file
/// Starts worker processes for `train`. Launching on many machines is Slurm's, MPI's or Kubernetes'
/// work; each would be one more implementation of this interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

struct LaunchSpec {
  std::string name;
  std::vector<std::string> argv;  ///< argv[0] is the program's path.
  std::string log_path;           ///< Its standard output and error, appended; the folder exists.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Replaces ours, or adds.
};

struct ExitReport {
  std::string name;
  int64_t pid = 0;
  int code = -1;  ///< Exit code, or -1 when a signal ended it.
  int signal = 0;
  std::string reason;  ///< "exit code 1", "killed by SIGKILL".
};

/// Thread: any.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Returns the new process' id. Not from on_exit, which the thread that launches calls.
  virtual Result<int64_t> Launch(const LaunchSpec& spec) = 0;
  /// Sends a signal to the process group of `pid`. Errors: kNotFound when it has ended.
  virtual Status Signal(int64_t pid, int signal) = 0;
  /// Waits until all have ended; kDeadlineExceeded names those that run on.
  virtual Status WaitAll(Deadline deadline) = 0;
};

struct LocalLauncherOptions {
  /// Workers die with this process, however it ends (PR_SET_PDEATHSIG).
  bool die_with_parent = true;
  /// Called once a process, from the launcher's thread, after it was reaped.
  std::function<void(const ExitReport&)> on_exit;
};

/// Each process in a process group of its own, so that Ctrl-C reaches only the parent. The
/// destructor kills (SIGKILL) and reaps what still runs.
Result<std::unique_ptr<Launcher>> MakeLocalLauncher(LocalLauncherOptions options);

}  // namespace heddle::elastic
