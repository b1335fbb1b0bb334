/// \file
/// A process that begins anew: the same program and arguments, and nothing of what it held.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace heddle {

/// The words that this process was started with; the first one is its program's name. Errors: of
/// /proc.
Result<std::vector<std::string>> OwnArguments();

/// Replaces this process by a new run of its program with the same arguments and environment, and
/// the variable `name` set to `value`. Descriptors other than the standard ones are closed, threads
/// end where they are; process id, process group and parent stay. Returns only with an error.
Status BeginAnew(const std::string& name, const std::string& value);

}  // namespace heddle
