/// \file
/// Brings a checkpoint of another run into a job's folder, to go on from it there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Makes the checkpoint at `path` the first of `root` and returns its step. Its files are linked,
/// or copied to another file system, and it appears in one rename, as a commit. A root that has
/// checkpoints keeps them as they are: a job that was interrupted goes on from its own newest one;
/// the result is its step.
///
/// Errors: kInvalidArgument  not a checkpoint; another state than `expected`; one of root's own
/// that is not the newest
///         kDataLoss         damaged; the message names the file
///         and those of the file system.
Result<int64_t> Import(const std::string& path,
                       const std::string& root,
                       const std::vector<TensorInfo>& expected);

/// What Import would return, as far as reading tells; writes nothing. Errors: as Import.
Result<int64_t> CheckImport(const std::string& path,
                            const std::string& root,
                            const std::vector<TensorInfo>& expected);

}  // namespace heddle::checkpoint
