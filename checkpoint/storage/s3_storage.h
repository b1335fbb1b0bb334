/// \file
/// Checkpoints in an object store with the interface of Amazon S3, at s3://BUCKET/PREFIX; whose, by
/// which right, is said by the environment (checkpoint/storage/s3/settings.h).
///
/// PREFIX/step-00000040/MANIFEST.json     its presence is the commit
/// PREFIX/step-00000040/NAME.g3.h5        a writer's file of generation 3, committed or not
/// PREFIX/.generation                     the newest generation that is known here
///
/// A writer's file is written in a folder of the local file system, uploaded, and read back. The
/// manifest comes last, by a conditional write: it replaces nothing but what its generation has
/// seen and may replace. A store that ignores conditions is refused.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

/// Errors: kInvalidArgument for a bad URL or environment.
Result<std::unique_ptr<Storage>> OpenS3Storage(const std::string& root);

}  // namespace heddle::checkpoint
