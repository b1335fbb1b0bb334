/// \file
/// The lock of a file or folder, between processes and threads; the kernel frees it with the
/// process.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle {

/// Takes the exclusive lock (flock) of an open file or folder; it is held until the descriptor and
/// its copies are closed. `name` is what errors call it. Errors: kUnavailable when another one
/// has held it for `longest`; the kernel's, where the file system knows no locks. Thread-safe.
Status LockWithin(const UniqueFd& fd, const std::string& name, Duration longest);

}  // namespace heddle
