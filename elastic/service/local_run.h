/// \file
/// `heddle train`: a coordinator in this process and the job's workers as local processes, until
/// the job ends.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace heddle::elastic {

struct LocalRunOptions {
  std::string job_path;
  std::vector<std::string> overrides;  ///< "key.path=value".
  std::string output;                  ///< Folder of the run; empty: the job's, or runs/NAME.
  std::string program;                 ///< Path of heddle-engine, started as `worker`.
  std::string listen = "127.0.0.1:0";
  bool insecure = false;  ///< Listen beyond loopback, where everybody may come in.
  bool progress = true;   ///< Progress on standard error.
};

struct RunEnd {
  bool suspended = false;  ///< The same call goes on with the job.
  std::string reason;      ///< Suspended: where it goes on, and what was lost, if anything was.
};

/// Runs the job to its end, or until it is suspended: its workers were told to end (SIGTERM of this
/// process, or of all of theirs), and what they held was saved. An output folder of the same job is
/// resumed and appended to.
/// Errors: kInvalidArgument   the job file, or the folder belongs to another job (the exit code is
/// 2)
///         anything else      the run failed (1)
/// Thread: the process' main thread: handles SIGTERM, and SIGINT or a second SIGTERM: the job stops
/// at once, and goes on from its last checkpoint when it is started again.
Result<RunEnd> RunLocally(const LocalRunOptions& options);

}  // namespace heddle::elastic
