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
  bool progress = true;  ///< Progress on standard error.
};

/// Runs the job to its end. An output folder of the same job is resumed and appended to.
/// Errors: kInvalidArgument   the job file, or the folder belongs to another job (the exit code is
/// 2)
///         anything else      the run failed (1)
/// Thread: the process' main thread: handles SIGINT and SIGTERM (the job stops; it can be resumed).
Status RunLocally(const LocalRunOptions& options);

}  // namespace heddle::elastic
