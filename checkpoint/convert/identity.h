/// \file
/// Detects whether a source has changed, without reading it.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::checkpoint {

/// A text with the path, size, inode, mtime and ctime of the file at `path`, or of every file in
/// the folder; for a URL, the name and hash of the checkpoint's manifest. The text changes when a
/// source is written to, replaced or copied. Errors: those of the file system or store.
Result<std::string> FileFingerprint(const std::string& path);

}  // namespace heddle::checkpoint
