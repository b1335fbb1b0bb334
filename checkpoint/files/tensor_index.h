/// \file
/// The file in which other programs find every whole tensor of a checkpoint by its name,
/// independent of the workers that wrote it: virtual datasets over the workers' files. Heddle never
/// reads it, because the manifest says where chunks lie.
#pragma once

#include <string>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

inline constexpr const char* kTensorIndexName = "tensors.h5";

/// Writes FOLDER/tensors.h5 for the boxes of `manifest`, whose files are in `folder`, and syncs it.
/// Tensors without elements and tensors with derived boxes are left out, because their elements are
/// not stored. Returns the record for the manifest. Errors: those of writing (kResourceExhausted:
/// disk full).
Result<FileRecord> WriteTensorIndex(const std::string& folder, const Manifest& manifest);

}  // namespace heddle::checkpoint
