/// \file
/// Asks another program for its output, for no longer than a bound.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::machine {

/// What a program wrote, and how it ended.
struct ProgramAnswer {
  std::string output;      ///< Its standard output up to its end, or up to the bound.
  bool timed_out = false;  ///< It had not ended within the bound.
  std::string end;         ///< "exit code 0", "signal 11"; empty: it timed out.
};

/// Runs a program whose path is `arguments[0]` and returns what it wrote. It has no input, its
/// errors are dropped, and it inherits no descriptor. After `bound` it is killed; one that even
/// then does not end, because it waits in the kernel, is left to itself. Errors: kNotFound and
/// others of posix_spawn and pipe2; kResourceExhausted: it wrote more than 1 MiB. Thread: any.
Result<ProgramAnswer> AskProgram(const std::vector<std::string>& arguments, Duration bound);

}  // namespace heddle::machine
