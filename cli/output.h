/// \file
/// The output of subcommands: data on standard output, everything else on standard error.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::cli {

/// Prints "error: MESSAGE" (a message that names its file, line and column is printed as it is) and
/// returns the exit code: 2 for bad usage or input, 1 otherwise.
int Report(const Status& status);

/// Reports the outcome of a call to the coordinator at `address`, as Report does. If no coordinator
/// answers, the address counts as wrong, with exit code 2.
int ReportCall(const Status& status, const std::string& address);

/// Flushes standard output and returns `code`. If the output could not be written (a full disk, a
/// closed descriptor), prints an error, and returns 1 instead of 0. Called once, at the end.
int EndOutput(int code);

/// Prints "note: LINE" on standard error.
void PrintNote(const std::string& line);

/// Returns the folder of a run: `given`, or the newest run under ./runs. Errors: kInvalidArgument
/// (there is no run).
Result<std::string> FindRun(const std::string& given);

/// Returns the coordinator's address: `given`, or the one in job.json of the run's folder `run` or,
/// if that is empty, of the newest run under ./runs. Errors: kInvalidArgument (no run, or no
/// address in job.json), those of reading it.
Result<std::string> FindCoordinator(const std::string& given, const std::string& run);

}  // namespace heddle::cli
