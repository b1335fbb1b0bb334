/// \file
/// Re-executes the process: the same program and arguments, without its memory and descriptors.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace heddle {

/// The arguments of this process; the first is its program's name. Errors: those of reading /proc.
Result<std::vector<std::string>> OwnArguments();

/// Replaces this process by a new run of its program (execv) with the same arguments and
/// environment, and the variable `name` set to `value`. Descriptors other than the standard ones
/// are closed and other threads end; process ID, process group and parent stay the same. Returns
/// only on an error.
Status ReExecute(const std::string& name, const std::string& value);

}  // namespace heddle
