/// \file
/// Imports a checkpoint of another run into a job's folder, so that the job resumes from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Makes the checkpoint at `path` the first of `root` and returns its step. Its files are linked,
/// or copied if they are on another file system, and it appears in one rename, like a commit. A
/// root that has checkpoints is left unchanged, because an interrupted job resumes from its own
/// newest checkpoint; the result is then the step of that one.
///
/// Errors: kInvalidArgument  not a checkpoint; another state than `expected`; one in `root` that is
///                           not the newest there
///         kDataLoss         damaged; the message names the file
///         and those of the file system.
Result<int64_t> Import(const std::string& path,
                       const std::string& root,
                       const std::vector<TensorInfo>& expected);

/// Returns what Import would return, as far as that can be determined without writing. Errors:
/// those of Import.
Result<int64_t> CheckImport(const std::string& path,
                            const std::string& root,
                            const std::vector<TensorInfo>& expected);

}  // namespace heddle::checkpoint
