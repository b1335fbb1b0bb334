/// \file
/// Loads the manifest of a checkpoint from its storage.
#pragma once

#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Reads and validates only the manifest of the checkpoint at `path`, a folder or a URL.
/// Errors: kInvalidArgument  not a checkpoint (no folder, or one without a manifest)
///         kDataLoss         damaged, or of another step than its folder's name says
///         kUnimplemented    written by a newer version
///         and those of a store that cannot be reached (checkpoint/storage/storage.h)
/// Thread: any.
Result<Manifest> LoadManifest(const std::string& path);

}  // namespace heddle::checkpoint
