/// \file
/// Starts worker processes for `train`. Slurm, MPI or Kubernetes launch workers on many machines;
/// each would be another implementation of this interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::elastic {

/// A process to start.
struct LaunchSpec {
  std::string name;
  std::vector<std::string> argv;  ///< argv[0] is the program's path.
  std::string log_path;           ///< Gets standard output and error, appended; the folder exists.
  /// Variables that are added to this process's environment or replace its own.
  std::vector<std::pair<std::string, std::string>> environment;
};

/// How a process ended.
struct ExitReport {
  std::string name;
  int64_t pid = 0;
  int code = -1;       ///< Exit code; -1 if a signal ended the process.
  int signal = 0;      ///< The signal that ended the process; 0: none.
  std::string reason;  ///< "exit code 1", "killed by SIGKILL".
};

/// Starts processes and watches them. Thread: any.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Starts a process and returns its id. After an error no process runs or will be started. Must
  /// not be called from on_exit, which the launching thread calls.
  virtual Result<int64_t> Launch(const LaunchSpec& spec) = 0;
  /// Sends a signal to the process group of `pid`. Errors: kNotFound (the process has ended).
  virtual Status Signal(int64_t pid, int signal) = 0;
  /// Waits until all processes have ended. Errors: kDeadlineExceeded naming those that still run.
  virtual Status WaitAll(Deadline deadline) = 0;
};

struct LocalLauncherOptions {
  /// Processes are killed when this one ends, however it ends (PR_SET_PDEATHSIG).
  bool die_with_parent = true;
  /// Called once for each process after it was reaped. Thread: the launcher's.
  std::function<void(const ExitReport&)> on_exit;
  /// Bound of a start; an executable on a dead network file system may exceed it.
  Duration launch_timeout = std::chrono::seconds(30);
};

/// Makes a launcher of processes on this machine. Each process is in a process group of its own, so
/// that Ctrl-C reaches only the parent. The launcher's destructor kills (SIGKILL) and reaps the
/// processes that still run.
Result<std::unique_ptr<Launcher>> MakeLocalLauncher(LocalLauncherOptions options);

}  // namespace heddle::elastic
