/// \file
/// Locks of files and folders, between processes and threads. The kernel releases a lock when its
/// process ends.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle {

/// Takes the exclusive lock (flock) of an open file or folder, which is held until the descriptor
/// and its copies are closed. `name` is its name in errors. Errors: kUnavailable (another holder
/// has kept it for `longest`); those of flock, if the file system has no locks. Thread: any.
Status LockWithin(const UniqueFd& fd, const std::string& name, Duration longest);

}  // namespace heddle
