/// \file
/// The file in which other programs find every tensor of a checkpoint whole, under its name,
/// whatever the workers that held it: virtual datasets over the workers' files. Heddle itself never
/// reads it: the manifest says where chunks lie.
#pragma once

#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

inline constexpr const char* kTensorIndexName = "tensors.h5";

/// Writes FOLDER/tensors.h5 for the boxes of `manifest`, whose files lie in `folder`, and brings it
/// to storage. Tensors without elements, and those that are derived, even in part, are not in it:
/// they are nowhere. Returns what the manifest must list. Errors: those of writing
/// (kResourceExhausted: disk full).
Result<FileRecord> WriteTensorIndex(const std::string& folder, const Manifest& manifest);

}  // namespace heddle::checkpoint
