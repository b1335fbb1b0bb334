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
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT of the coordinator; port 0: any free one.
  bool insecure = false;               ///< Allows `listen` beyond loopback, without certificates.
  bool progress = true;                ///< Prints progress on standard error.
};

/// How a run ended without an error.
struct RunEnd {
  bool suspended = false;  ///< The job was suspended; RunLocally with the same options resumes it.
  std::string reason;      ///< If suspended: the step that it resumes after, and what was lost.
};

/// Runs the job until it ends or is suspended. It is suspended when this process, or all of its
/// workers, get SIGTERM: the workers save their state and leave. SIGINT or a second SIGTERM ends
/// the job at once; started again, it resumes from its last checkpoint. A folder that holds a run
/// of the same job is resumed and appended to.
/// Errors: kInvalidArgument (the job file, or the folder belongs to another job; exit code 2), any
/// other error if the run failed (exit code 1).
/// Thread: the process's main thread; installs handlers for SIGTERM and SIGINT.
Result<RunEnd> RunLocally(const LocalRunOptions& options);

}  // namespace heddle::elastic
