/// \file
/// Checks every byte of a checkpoint and reports damage.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/progress.h"

namespace heddle::checkpoint {

struct Damage {
  std::string file;    ///< File name inside the checkpoint's folder.
  std::string tensor;  ///< "name (role)" if the bytes belong to a tensor, else empty.
  std::string what;
};

/// The damage as text: "FILE: tensor 'NAME (ROLE)': WHAT".
std::string ToString(const Damage& damage);

/// Verifies all checksums (manifest, files, chunks), sizes, coverage, and the digest of every
/// tensor from its decoded elements; derived elements are computed from their source once all files
/// are sound. Returns the damage found; empty: the checkpoint is sound. `progress` counts the bytes
/// read: every chunk, and then its file. Errors: kInvalidArgument (not a checkpoint),
/// kPermissionDenied, kUnimplemented (a newer version), those of a store that cannot be reached.
Result<std::vector<Damage>> Verify(const std::string& path, const Progress& progress = {});

}  // namespace heddle::checkpoint
