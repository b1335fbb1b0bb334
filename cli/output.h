/// \file
/// How subcommands speak: data on standard output, everything else on standard error.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::cli {

/// Prints "error: MESSAGE" (a message that names its file, line and column is printed as it is) and
/// returns the exit code: 2 for bad usage or input, 1 otherwise.
int Report(const Status& status);

/// Report() for a call to the coordinator at `address`: one that nobody answers is a wrong address,
/// exit code 2.
int ReportCall(const Status& status, const std::string& address);

/// `code`, unless standard output did not take what was printed (a full disk, a closed descriptor):
/// then says so, and returns 1 where `code` is 0. Called once, at the end.
int EndOutput(int code);

/// Prints "note: LINE" on standard error.
void PrintNote(const std::string& line);

/// The folder of a run: `given`, or the newest run under ./runs. Errors: kInvalidArgument (there is
/// none).
Result<std::string> FindRun(const std::string& given);

/// The coordinator's address: `given`, or that of the run folder `run` (its job.json), or of the
/// newest run under ./runs. Errors: kInvalidArgument.
Result<std::string> FindCoordinator(const std::string& given, const std::string& run);

}  // namespace heddle::cli
