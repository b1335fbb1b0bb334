/// \file
/// Telling whether a source is what it was, without reading it.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::checkpoint {

/// Name, size, inode and times of change of the file at `path`, or of every file in the folder: the
/// text of a source that was written to, replaced or copied is another one. Errors: those of the
/// file system.
Result<std::string> FileFacts(const std::string& path);

}  // namespace heddle::checkpoint
